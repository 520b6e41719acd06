// When sections are drawn: each when it first comes near the screen, and again when another setting is chosen.

const MAKERS = { curves, availability, staleness, participation, labels };
const sections = Object.entries(MAKERS).map(([id, make]) => {
  const section = { element: document.getElementById(id), drawn: false };
  section.draw = () => {
    section.again ||= make();
    section.drawn = true;
    section.again();
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

// What lies above a target needs its height before the jump.
const links = [...document.querySelectorAll(".links a")];
for (const link of links) link.addEventListener("click", drawAll);
if (location.hash) {
  drawAll();
  document.getElementById(location.hash.slice(1))?.scrollIntoView({ behavior: "instant" });
}
const passing = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    for (const link of links) {
      const here = link.hash === `#${target.id}`, row = link.parentElement;
      if (here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      if (here) row.scrollLeft = link.offsetLeft - row.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
    }
  }
}, { rootMargin: "-30% 0px -65% 0px" });
for (const section of document.querySelectorAll("section")) passing.observe(section);
