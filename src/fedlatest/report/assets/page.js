// Draws each section when it is first scrolled near the screen, and again when another setting is selected.

const SECTIONS = { curves, availability, staleness, participation, labels };
const sections = Object.entries(SECTIONS).map(([id, make]) => {
  const section = { element: document.getElementById(id), drawn: false };
  section.draw = () => {
    section.redraw ||= make();
    section.drawn = true;
    section.redraw();
  };
  return section;
});

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const section = sections.find(({ element }) => element === target);
    if (isIntersecting && !section.drawn) section.draw();
  }
  performance.mark("drawn");
}, { rootMargin: "300px" });
for (const { element } of sections) near.observe(element);

const drawAll = () => {
  for (const section of sections) if (!section.drawn) section.draw();
};
window.addEventListener("beforeprint", drawAll);
if (chooser) {
  chooser.addEventListener("change", () => {
    for (const section of sections) if (section.drawn) section.draw();
  });
}

// The sections above the target of a link must have their height before the browser scrolls to it.
const links = [...document.querySelectorAll(".links a")];
for (const link of links) link.addEventListener("click", drawAll);
if (location.hash) {
  drawAll();
  document.getElementById(location.hash.slice(1))?.scrollIntoView({ behavior: "instant" });
}
const reading = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    for (const link of links) {
      const isCurrent = link.hash === `#${target.id}`, row = link.parentElement;
      if (isCurrent) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      if (isCurrent) row.scrollLeft = link.offsetLeft - row.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
    }
  }
}, { rootMargin: "-30% 0px -65% 0px" });
for (const section of document.querySelectorAll("section")) reading.observe(section);
