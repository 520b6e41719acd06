// Downloads: a chart as CSV, SVG or PNG, and the table as CSV. Pictures have light colours and a legend.

const EXPORTED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "stroke-linejoin"];

function downloadButtons(chart) {
  const box = html("div", { class: "downloads", role: "group", "aria-label": "Download the chart" }, "Download");
  const save = {
    CSV: () => saveFile(`${chart.options.file}.csv`, "text/csv", chartAsCsv(chart)),
    SVG: () => saveFile(`${chart.options.file}.svg`, "image/svg+xml", chartAsSvg(chart)),
    PNG: () => savePng(chart),
  };
  for (const [name, press] of Object.entries(save)) {
    box.append(html("button", { type: "button", "data-download": name, onclick: press }, name));
  }
  return box;
}

function saveFile(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Return rows as CSV. A text that a spreadsheet would take for a formula gets a leading apostrophe. */
function asCsv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (isNumber(value)) return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
}

/** Return the visible values of a chart: one row per line and x, or per seed if each seed is drawn. */
function chartAsCsv({ series, options, domain, full }) {
  const [first, last] = domain || full;
  const rows = [["run", options.x, options.y, "lowest", "highest"]];
  for (const one of series) {
    one.x.forEach((x, i) => {
      if (x < first || x > last) return;
      const at = options.categories ? options.categories[x] : x;
      if (one.lines) for (const y of one.lines) rows.push([one.label, at, y[i]]);
      else rows.push([one.label, at, one.y[i], one.low?.[i], one.high?.[i]]);
    });
  }
  return asCsv(rows);
}

/** Return a chart as a self-contained SVG file in light colours, with its legend below. */
function chartAsSvg(chart) {
  const root = document.documentElement, { theme } = root.dataset;
  root.dataset.theme = "light"; // nothing is painted before the line that restores it
  const image = chart.plot.querySelector("svg"), copy = image.cloneNode(true);
  const parts = [...image.querySelectorAll("*")], copies = [...copy.querySelectorAll("*")];
  parts.forEach((part, i) => {
    const style = getComputedStyle(part);
    copies[i].removeAttribute("class");
    for (const name of EXPORTED) if (style[name] !== "") copies[i].setAttribute(name, style.getPropertyValue(name));
  });
  const [, , width, height] = image.getAttribute("viewBox").split(" ").map(Number);
  const ink = getComputedStyle(root).getPropertyValue("--ink");
  const total = height + addLegend(copy, chart, width, height, ink);
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${total}`, width, height: total })) {
    copy.setAttribute(name, value);
  }
  copy.setAttribute("font-family", "system-ui, Helvetica, Arial, sans-serif");
  copy.prepend(svg("rect", { width, height: total, fill: "#ffffff" }));
  if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
  return new XMLSerializer().serializeToString(copy);
}

/** Add the names of a chart's lines below it; return the height that they need. */
function addLegend(image, chart, width, top, ink) {
  let x = chart.frame.left, y = top + 16;
  for (const one of chart.series) {
    const length = 44 + 6.8 * one.label.length;
    if (x > chart.frame.left && x + length > width) [x, y] = [chart.frame.left, y + 20];
    const line = svg("path", { d: `M${x} ${y}h28`, fill: "none", "stroke-width": 2.5 }, image);
    const key = `[data-key="${CSS.escape(one.key)}"]`, sample = chart.plot.querySelector(`.line${key}, circle${key}`);
    line.setAttribute("stroke", sample ? getComputedStyle(sample).stroke : ink);
    if (one.dash) line.setAttribute("stroke-dasharray", one.dash);
    svg("text", { x: x + 34, y: y + 4, fill: ink, "font-size": "12px" }, image, one.label);
    x += length;
  }
  return y + 16 - top;
}

async function savePng(chart) {
  const scale = 2, picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(chartAsSvg(chart))}`;
  await picture.decode();
  const canvas = html("canvas", { width: scale * picture.width, height: scale * picture.height });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => saveFile(`${chart.options.file}.png`, "image/png", blob));
}
