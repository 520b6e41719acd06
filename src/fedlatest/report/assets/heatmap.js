// A picture of clients x rounds on a canvas, with axes in SVG and a cursor that selects a cell.

class HeatMap {
  constructor(box, label) {
    this.plot = html("div", {
      class: "plot", tabindex: "0", role: "application", "aria-roledescription": "heat map",
      "aria-label": `${label}; arrow keys move from cell to cell`,
    });
    this.tip = html("div", { class: "tip", hidden: "" });
    this.canvas = html("canvas", { "aria-hidden": "true" });
    box.append(this.plot, this.tip);
    this.at = null; // [row, column]
    this.addListeners();
    addEventListener("theme", () => this.plot.isConnected && this.draw());
    redrawOnResize(this);
  }

  /** `map` contains the bins, `cells` a level per cell, `most` the value of the highest level, `label` its name. */
  show(map, cells, most, label) {
    Object.assign(this, { map, cells, most, label, at: null });
    this.draw();
  }

  get size() { return [this.map.rows.length - 1, this.map.columns.length - 1]; }

  draw() {
    if (!this.map) return;
    this.width = this.plot.clientWidth;
    const width = Math.max(280, this.width), height = Math.min(300, Math.max(200, 0.5 * width));
    this.frame = { left: 60, right: width - 8, top: 6, bottom: height - 44 };
    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    this.drawAxes(image, width, height);
    this.layer = svg("g", {}, image);
    this.drawCells();
    this.plot.replaceChildren(this.canvas, image);
    image.style.position = "relative"; // above the canvas
    this.drawCursor(false);
  }

  drawAxes(image, width, height) {
    const { left, right, top, bottom } = this.frame, { rows, columns, labels } = this.map;
    const clients = rows[rows.length - 1], rounds = columns[columns.length - 1];
    const y = (client) => top + (client / clients) * (bottom - top);
    let previous = -Infinity; // position of the last name; names that would overlap it are left out
    const starts = labels.length ? labels : wholeTicks(0, clients, 4).map(({ value }) => [whole(value), value]);
    starts.forEach(([name, first], i) => {
      const next = labels.length ? (i + 1 < starts.length ? starts[i + 1][1] : clients) : first;
      svg("path", { d: `M${left - 5} ${y(first)}H${left}`, class: "axis" }, image);
      const middle = y((first + next) / 2);
      if (middle - previous < 12) return;
      svg("text", { x: left - 8, y: middle + 4, "text-anchor": "end" }, image, name);
      previous = middle;
    });
    for (const { value, text } of wholeTicks(0, rounds, (right - left) / 90)) {
      const x = left + (value / rounds) * (right - left);
      svg("path", { d: `M${x} ${bottom}v5`, class: "axis" }, image);
      svg("text", { x, y: bottom + 19, "text-anchor": x > width - 30 ? "end" : "middle" }, image, text);
    }
    svg("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle", class: "title" }, image, "round");
    const middle = (top + bottom) / 2;
    const titleY = { x: 12, y: middle, "text-anchor": "middle", class: "title", transform: `rotate(-90 12 ${middle})` };
    svg("text", titleY, image, labels.length ? "clients by label" : "clients");
  }

  drawCells() {
    const [rows, columns] = this.size, { left, right, top, bottom } = this.frame;
    const palette = heatMapColours();
    Object.assign(this.canvas, { width: columns, height: rows });
    const context = this.canvas.getContext("2d"), pixels = context.createImageData(columns, rows);
    for (let i = 0; i < rows * columns; i++) pixels.data.set(palette[this.level(i)], 4 * i);
    context.putImageData(pixels, 0, 0);
    const style = { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` };
    // If enlarged, cells get sharp edges; if reduced, they are averaged, so that no cell is skipped.
    style.imageRendering = right - left >= columns ? "pixelated" : "auto";
    Object.assign(this.canvas.style, style);
  }

  level(i) { return LEVEL[this.cells.charCodeAt(i)]; }

  /** Mark the selected cell and show its values; announce them to screen readers if asked to. */
  drawCursor(announced) {
    this.layer.replaceChildren();
    this.tip.hidden = this.at === null;
    if (this.at === null) return;
    const [row, column] = this.at, [rows, columns] = this.size, { left, right, top, bottom } = this.frame;
    const w = (right - left) / columns, h = (bottom - top) / rows, x = left + column * w;
    svg("rect", { x, y: top + row * h, width: w, height: h, class: "cell" }, this.layer);
    const lines = this.describe(row, column);
    this.tip.replaceChildren(html("b", {}, lines[0]), html("br"), lines[1], html("br"), lines[2]);
    place(this.tip, this.plot, x, w + 12);
    if (announced) announce(lines.join(", "));
  }

  /** Return the clients (by their position in the picture), the rounds and the share of a cell as texts. */
  describe(row, column) {
    const { rows, columns, labels } = this.map;
    const range = (noun, from, to) => (to > from ? `${noun}s ${whole(from)}–${whole(to)}` : `${noun} ${whole(from)}`);
    const end = (i) => (i + 1 === labels.length ? Infinity : labels[i + 1][1]);
    const overlaps = ([, first], i) => first < rows[row + 1] && end(i) > rows[row];
    const names = labels.filter(overlaps).map(([name]) => name);
    const share = (this.most * this.level(row * this.size[1] + column)) / 63;
    return [
      (names.length ? `label${names.length > 1 ? "s" : ""} ${names.join(", ")}: ` : "")
        + `${range("client", rows[row] + 1, rows[row + 1])} of ${whole(rows[rows.length - 1])}`,
      range("round", columns[column], columns[column + 1] - 1),
      `${this.label}: ${percent(share)} of the client-round pairs`,
    ];
  }

  addListeners() {
    this.plot.addEventListener("pointermove", (event) => {
      const { left, right, top, bottom } = this.frame, box = this.plot.getBoundingClientRect();
      const [rows, columns] = this.size;
      const x = (event.clientX - box.left - left) / (right - left);
      const y = (event.clientY - box.top - top) / (bottom - top);
      this.at = x >= 0 && x < 1 && y >= 0 && y < 1 ? [Math.floor(y * rows), Math.floor(x * columns)] : null;
      this.drawCursor(false);
    });
    const leave = () => { this.at = null; this.drawCursor(false); };
    this.plot.addEventListener("pointerleave", leave);
    this.plot.addEventListener("blur", leave);
    this.plot.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = event.shiftKey ? 10 : 1;
      const moved = (i, axis) => Math.min(this.size[axis] - 1, Math.max(0, i + step * move[axis]));
      this.at = this.at ? this.at.map(moved) : [0, 0];
      this.drawCursor(true);
      event.preventDefault();
    });
  }
}

const LEVEL = [];
[...DATA.levels].forEach((letter, level) => { LEVEL[letter.charCodeAt(0)] = level; });

/** Return the 64 colours from --map-0 through --map-1 to --map-2. */
function heatMapColours() {
  const style = getComputedStyle(document.documentElement);
  const parts = (name) => style.getPropertyValue(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
  const stops = ["--map-0", "--map-1", "--map-2"].map(parts);
  return [...DATA.levels].map((_, level) => {
    const t = (2 * level) / 63, half = t < 1 ? 0 : 1, share = t - half;
    const from = stops[half], to = stops[half + 1];
    return [...from.map((part, i) => part + share * (to[i] - part)), 255];
  });
}
