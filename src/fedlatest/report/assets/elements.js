"use strict";
// Parts that all charts use: elements, number formats, legends and controls.

let DATA = JSON.parse(document.getElementById("data").textContent);
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

function swatch(colour, dash, isPoint = false) {
  const image = svg("svg", { class: "swatch", viewBox: "0 0 28 10", "aria-hidden": "true" });
  if (isPoint) svg("circle", { cx: 14, cy: 5, r: 4.5, fill: colour }, image);
  else svg("path", { d: "M1 5H27", stroke: colour, "stroke-dasharray": dash || null }, image);
  return image;
}

const plain = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toLocaleString("en"));
const isNumber = (value) => typeof value === "number";
const whole = (value) => Math.round(value).toLocaleString("en");
const fourDigits = (value) => value.toFixed(4);
const shortest = (value) => Number(value.toPrecision(3));
const percent = (value, places = null) => `${places === null ? shortest(100 * value) : (100 * value).toFixed(places)}%`;

/** Join names; with semicolons if a name contains a comma. */
const listed = (names) => names.join(names.some((name) => name.includes(", ")) ? "; " : ", ");
const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** Return mean, lowest and highest of some numbers, of which null is left out; null if there are none. */
function overValues(values) {
  const known = values.filter(isNumber);
  if (!known.length) return { mean: null, low: null, high: null };
  return { mean: known.reduce((a, b) => a + b, 0) / known.length, low: Math.min(...known), high: Math.max(...known) };
}

/** Let screen readers read a text. */
function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Redraw a chart when its width changes; the width of a hidden chart is 0. */
function redrawOnResize(chart) {
  new ResizeObserver(() => {
    const { clientWidth } = chart.plot;
    if (clientWidth && chart.width !== undefined && clientWidth !== chart.width) chart.draw();
  }).observe(chart.plot);
}

/** Place a tooltip beside x, on the side with more space, or below the plot if the plot is narrow. */
function place(tip, plot, x, gap) {
  const width = plot.clientWidth, narrow = width < 600, right = x < width / 2;
  tip.style.top = narrow ? `${plot.clientHeight + 4}px` : "8px";
  tip.style.left = narrow ? "0" : right ? `${x + gap}px` : "auto";
  tip.style.right = narrow || right ? "auto" : `${width - x + gap}px`;
}

/** Return a group of buttons of which one is pressed; `options` are [value, text]. */
function choice(label, options, selected, change) {
  const box = html("div", { class: "choice", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    const press = () => {
      for (const button of box.children) button.setAttribute("aria-pressed", String(button.value === value));
      change(value);
    };
    const pressed = String(value === selected);
    box.append(html("button", { type: "button", value, "aria-pressed": pressed, onclick: press }, text));
  }
  return box;
}

/** Fill a legend with buttons that show and hide lines; `items` are {key, label, colour, dash, isPoint}, `hidden` has keys. */
function legend(box, items, hidden, change, highlight = () => {}) {
  box.replaceChildren(...items.map(({ key, label, colour, dash, isPoint }) => {
    const button = html("button", { type: "button", "data-key": key, "aria-pressed": String(!hidden.has(key)) });
    button.append(swatch(colour, dash, isPoint), label);
    button.addEventListener("click", () => {
      if (!hidden.delete(key)) hidden.add(key);
      button.setAttribute("aria-pressed", String(!hidden.has(key)));
      change();
    });
    for (const [event, shown] of [["pointerenter", key], ["focus", key], ["pointerleave", null], ["blur", null]]) {
      button.addEventListener(event, () => highlight(shown));
    }
    return button;
  }));
}

/** Return a labelled drop-down list; `options` are [value, text]. */
function list(label, options, selected, change) {
  const box = html("select", { autocomplete: "off", onchange: () => change(box.value) });
  for (const [value, text] of options) box.append(new Option(text, value, false, String(value) === String(selected)));
  return html("label", { class: "group" }, html("span", {}, label), box);
}
