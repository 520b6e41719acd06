// Draws each section when it is first scrolled near the screen, and again when another setting or filter is selected.

const SECTIONS = { curves, runs: table, parameters, availability, staleness, participation, labels };
const sections = Object.entries(SECTIONS).map(([id, make]) => {
  const section = { id, element: document.getElementById(id), drawn: false };
  section.draw = () => {
    section.redraw ||= make();
    section.drawn = true;
    section.redraw();
  };
  return section;
});

/** Draw the sections again that are on the page: all, or one of them. */
function redrawSections(only = null) {
  for (const section of sections) if (section.drawn && (only === null || section.id === only)) section.draw();
}

/** Fill the bar with what applies to the whole page: setting, filter and theme. */
function drawTools() {
  const found = [], labels = DATA.settings.map(({ label }) => label);
  if (labels.length > 1) {
    const options = [[ALL, "All settings"], ...labels.map((label) => [label, label])];
    found.push(list("Setting", options, selectedSetting(), (value) => {
      select({ setting: value, range: "" });
      redrawSections();
    }));
    found[0].querySelector("select").id = "setting";
  }
  if (DATA.runs.length > 1) {
    const title = "Words that a run's name, status or values contain; key=value, key>number, key<number; -word negates";
    const input = html("input", {
      type: "search", id: "filter", autocomplete: "off", placeholder: "fedavg period>4", title,
      oninput: () => { select({ filter: input.value }); redrawSections(); },
    });
    input.value = STATE.filter;
    found.push(html("label", {}, "Filter", input));
  }
  document.querySelector(".tools").replaceChildren(...found, themeButton());
}
drawTools();

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const section = sections.find(({ element }) => element === target);
    if (isIntersecting && !section.drawn) section.draw();
  }
  performance.mark("drawn");
}, { rootMargin: "300px" });
for (const section of sections) {
  near.observe(section.element);
  if (["runs", "parameters"].includes(section.id)) section.draw(); // decide what is shown at all
}

const drawAll = () => {
  for (const section of sections) if (!section.drawn) section.draw();
};
window.addEventListener("beforeprint", drawAll);

// The bar may have several rows; sections that a link leads to start below it.
const bar = document.querySelector(".bar");
new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);

// The sections above the target of a link must have their height before the browser scrolls to it.
const links = [...document.querySelectorAll(".links a")];
for (const link of links) link.addEventListener("click", drawAll);
const [target] = location.hash.slice(1).split("?");
if (target) {
  drawAll();
  document.getElementById(target)?.scrollIntoView({ behavior: "instant" });
}
const reading = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target: section } of entries) {
    if (!isIntersecting) continue;
    for (const link of links) {
      if (link.hash === `#${section.id}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}, { rootMargin: "-30% 0px -65% 0px" });
for (const section of document.querySelectorAll("section")) reading.observe(section);
