"use strict";
// Small things that every chart needs: elements, numbers as people read them, legends, lists to choose from.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = document.querySelector("svg").namespaceURI;

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function svg(name, attributes = {}, parent = null, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function swatch(colour, dash) {
  const picture = svg("svg", { class: "swatch", viewBox: "0 0 28 10", "aria-hidden": "true" });
  svg("path", { d: "M1 5H27", stroke: colour, "stroke-dasharray": dash || null }, picture);
  return picture;
}

const plain = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toLocaleString("en"));
const isNumber = (value) => typeof value === "number";
const whole = (value) => Math.round(value).toLocaleString("en");
const fourDigits = (value) => value.toFixed(4);
const shortest = (value) => Number(value.toPrecision(3));
const percent = (value, places = null) => `${places === null ? shortest(100 * value) : (100 * value).toFixed(places)}%`;

function announce(words) {
  document.getElementById("announcer").textContent = words;
}

/** Draw a chart again when it is given another width; a chart out of sight has none. */
function redrawOnResize(chart) {
  new ResizeObserver(() => {
    const { clientWidth } = chart.plot;
    if (clientWidth && chart.width !== undefined && clientWidth !== chart.width) chart.draw();
  }).observe(chart.plot);
}

/** Put a tip beside x, on the roomier side; under a plot that is too narrow to have anything lie on it. */
function place(tip, plot, x, gap) {
  const room = plot.clientWidth, narrow = room < 600, right = x < room / 2;
  tip.style.top = narrow ? `${plot.clientHeight + 4}px` : "8px";
  tip.style.left = narrow ? "0" : right ? `${x + gap}px` : "auto";
  tip.style.right = narrow || right ? "auto" : `${room - x + gap}px`;
}

/** Buttons of which one is pressed; `options` are [value, words]. */
function choice(words, options, chosen, change) {
  const box = html("div", { class: "choice", role: "group", "aria-label": words });
  for (const [value, label] of options) {
    const press = () => {
      for (const button of box.children) button.setAttribute("aria-pressed", String(button.value === value));
      change(value);
    };
    const pressed = String(value === chosen);
    box.append(html("button", { type: "button", value, "aria-pressed": pressed, onclick: press }, label));
  }
  return box;
}

/** A legend of buttons that show and hide; `items` are {key, label, colour, dash}, `hidden` is a set of keys. */
function legend(box, items, hidden, change, point = () => {}) {
  box.replaceChildren(...items.map(({ key, label, colour, dash }) => {
    const button = html("button", { type: "button", "data-key": key, "aria-pressed": String(!hidden.has(key)) });
    button.append(swatch(colour, dash), label);
    button.addEventListener("click", () => {
      if (!hidden.delete(key)) hidden.add(key);
      button.setAttribute("aria-pressed", String(!hidden.has(key)));
      change();
    });
    for (const [event, what] of [["pointerenter", key], ["focus", key], ["pointerleave", null], ["blur", null]]) {
      button.addEventListener(event, () => point(what));
    }
    return button;
  }));
}

/** A labelled list; `options` are [value, words]. */
function list(words, options, chosen, change) {
  const box = html("select", { autocomplete: "off", onchange: () => change(box.value) });
  for (const [value, label] of options) box.append(new Option(label, value, false, String(value) === String(chosen)));
  return html("label", { class: "group" }, html("span", {}, words), box);
}
