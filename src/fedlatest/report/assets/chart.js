// Line charts. Every change redraws the whole chart: a few dozen paths take a few milliseconds.
//
// A series is {key, label, colour, dash, width, x, y}, optionally with low and high (a band, unless hasBand is
// false), lines (drawn instead of y), published ({x, y}, drawn behind the line) and front (drawn last). A mark is
// {x or y, label}: a line across the plot. With the option `markers`, points are marked and ranges are strokes instead
// of a band; with `categories`, x is a position in a list of texts and points are not joined. A series with markers can
// have colours (one per point) and a shift (of its points, in x).

const MOST_IN_TIP = 20; // rows of a tooltip
const MOST_TRIED = 8; // values that are marked on the axis instead of round numbers
const colourAt = (one, i) => one.colours?.[i] ?? one.colour;

class LineChart {
  constructor(box, options) {
    this.options = { height: [240, 400], x: "", y: "", formatX: whole, formatY: plain, ...options };
    this.series = [];
    this.marks = [];
    this.log = false;
    this.domain = null; // the visible range of x; null for all
    this.at = null; // index into this.stops of the crosshair's position
    this.highlighted = null; // key of the highlighted series
    this.plot = html("div", {
      class: "plot", tabindex: "0", role: "application", "aria-roledescription": "chart",
      "aria-label": options.label, "aria-describedby": "keys",
    });
    this.tip = html("div", { class: "tip", hidden: "" });
    box.append(this.plot, this.tip);
    if (options.file) box.append(downloadButtons(this));
    this.addListeners();
    redrawOnResize(this);
  }

  /** Show some series; `options` are further options of the constructor that change. The crosshair stays at its x. */
  show({ series, marks = [], log = false, keepZoom = false, ...options }) {
    const x = this.at === null ? null : this.stops[this.at];
    Object.assign(this, { series, marks, log, at: null });
    Object.assign(this.options, options);
    if (!keepZoom) this.domain = null;
    this.computeRanges();
    if (x !== null && keepZoom && this.stops.length) this.at = nearest(this.stops, x);
    this.draw();
  }

  /** Show a range of x; null for all. */
  zoom(domain) {
    const [first, last] = this.full;
    if (domain) domain = [Math.max(first, domain[0]), Math.min(last, domain[1])];
    if (domain && (domain[1] <= domain[0] || (domain[0] === first && domain[1] === last))) domain = null;
    this.domain = domain;
    this.at = null;
    this.draw();
    if (this.onzoom) this.onzoom(this.domain || this.full);
  }

  /** Highlight one series by fading the others; null for none. */
  highlight(key) {
    this.highlighted = key;
    for (const part of this.plot.querySelectorAll("[data-key]")) {
      part.classList.toggle("faded", key !== null && part.dataset.key !== String(key));
    }
  }

  draw() {
    this.width = this.plot.clientWidth;
    const width = Math.max(280, this.width);
    const [least, most] = this.options.height;
    const slot = (width - 76) / (this.options.categories || []).length;
    this.isTilted = this.options.categories?.some((text) => 7 * Math.min(text.length, 24) > slot); // or they would overlap
    const below = this.isTilted ? 104 : 44, height = Math.round(Math.min(most, Math.max(least, 0.45 * width)) + below - 44);
    this.computeRanges();
    const ticksY = this.log ? logTicks(...this.rangeY)
      : (this.options.wholeY ? wholeTicks : ticks)(...this.rangeY, height / 60);
    const left = 32 + 7.2 * Math.max(2, ...ticksY.map((tick) => tick.text.length));
    this.frame = { left, right: width - 16, top: 12, bottom: height - below };
    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    this.drawAxes(image, ticksY, width, height);
    const inside = this.clip(image);
    for (const one of this.series) this.drawBackground(inside, one);
    if (this.options.markers) for (const one of this.series) this.drawMarkers(inside, one);
    const joined = this.options.categories ? [] : this.series;
    for (const one of joined) if (!one.front) this.drawLine(inside, one);
    for (const one of joined) if (one.front) this.drawLine(inside, one);
    for (const mark of this.marks) this.drawMark(image, mark);
    if (!this.stops.length) {
      const middle = { x: width / 2, y: height / 2, "text-anchor": "middle", class: "nothing" };
      svg("text", middle, image, "No data to show.");
    }
    this.layer = svg("g", {}, image);
    this.plot.replaceChildren(image);
    this.highlight(this.highlighted);
    this.drawCrosshair(false);
  }

  /** Compute the range of x, the range of y within it, and the positions at which the crosshair can stop. */
  computeRanges() {
    const ends = this.series.flatMap((one) => [one.x[0], one.x[one.x.length - 1]]).filter((x) => x !== undefined);
    this.full = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    const [first, last] = this.domain || this.full;
    this.rangeX = first !== last ? [first, last] : this.options.logX ? [first / 2, first * 2] : [first - 0.5, last + 0.5];
    if (this.options.categories) this.rangeX = [first - 0.5, last + 0.5];
    else if (this.options.markers && first !== last) { // so that marks at the ends are complete
      const margin = 0.02 * (this.options.logX ? Math.log(last / first) : last - first);
      if (this.options.logX) this.rangeX = [first * Math.exp(-margin), last * Math.exp(margin)];
      else this.rangeX = [first - margin, last + margin];
    }
    let low = Infinity, high = -Infinity;
    const include = (x, y) => x.forEach((at, i) => {
      if (at < first || at > last || y[i] === null || (this.log && y[i] <= 0)) return;
      low = Math.min(low, y[i]);
      high = Math.max(high, y[i]);
    });
    for (const one of this.series) {
      for (const y of [...(one.lines || [one.y]), one.low, one.high]) if (y) include(one.x, y);
      if (one.published) include(one.published.x, one.published.y);
    }
    for (const mark of this.marks) if ("y" in mark) [low, high] = [Math.min(low, mark.y), Math.max(high, mark.y)];
    if (this.options.zero && !this.log) low = Math.min(low, 0);
    if (low > high) [low, high] = this.log ? [0.1, 1] : [0, 1];
    const extent = this.log ? Math.log(high / low) || 1 : high - low || Math.abs(high) || 1;
    if (this.log) this.rangeY = [low * Math.exp(-0.04 * extent), high * Math.exp(0.04 * extent)];
    else this.rangeY = [this.options.zero && low === 0 ? 0 : low - 0.04 * extent, high + 0.04 * extent];
    const stops = new Set(this.series.flatMap((one) => one.x.filter((x) => x >= first && x <= last)));
    this.stops = [...stops].sort((a, b) => a - b);
  }

  px(x) {
    const scale = this.options.logX ? Math.log : Number;
    const [first, last] = this.rangeX.map(scale);
    return this.frame.left + ((scale(x) - first) / (last - first)) * (this.frame.right - this.frame.left);
  }

  /** Return the x at a pixel; the inverse of `px`. */
  xAt(pixel) {
    const [scale, inverse] = this.options.logX ? [Math.log, Math.exp] : [Number, Number];
    const { left, right } = this.frame, [first, last] = this.rangeX.map(scale);
    return inverse(first + ((Math.min(right, Math.max(left, pixel)) - left) / (right - left)) * (last - first));
  }

  py(y) {
    const scale = this.log ? Math.log : Number;
    const [low, high] = this.rangeY.map(scale);
    return this.frame.bottom - ((scale(y) - low) / (high - low)) * (this.frame.bottom - this.frame.top);
  }

  drawAxes(image, ticksY, width, height) {
    const { left, right, top, bottom } = this.frame;
    for (const { value, text } of ticksY) {
      const y = this.py(value);
      svg("path", { d: `M${left} ${y}H${right}`, class: "grid" }, image);
      svg("text", { x: left - 8, y: y + 4, "text-anchor": "end", class: "tick-y" }, image, text);
    }
    let free = -Infinity; // where the previous text ends
    for (const { value, text } of this.ticksX((right - left) / 90)) {
      const x = this.px(value), anchor = x > width - 30 ? "end" : "middle", half = 3.5 * text.length;
      svg("path", { d: `M${x} ${bottom}v5`, class: "axis" }, image);
      if (this.isTilted) {
        const place = { x: x + 4, y: bottom + 16, "text-anchor": "end", transform: `rotate(-40 ${x + 4} ${bottom + 16})` };
        svg("text", { ...place, class: "tick-x" }, image, shortened(text, 14));
      } else if (x - half > free) {
        svg("text", { x, y: bottom + 19, "text-anchor": anchor, class: "tick-x" }, image, text);
        free = x + half + 4;
      }
    }
    svg("path", { d: `M${left} ${bottom}H${right}`, class: "axis" }, image);
    const titleX = { x: (left + right) / 2, y: height - 6, "text-anchor": "middle", class: "title" };
    svg("text", titleX, image, this.options.x);
    const middle = (top + bottom) / 2;
    const titleY = { x: 12, y: middle, "text-anchor": "middle", class: "title", transform: `rotate(-90 12 ${middle})` };
    svg("text", titleY, image, this.options.y + (this.log ? " (log)" : ""));
  }

  ticksX(count) {
    const { categories, fractions, formatX, logX, tried } = this.options, [first, last] = this.rangeX;
    if (categories) {
      const isShown = ({ value }) => value >= first && value <= last;
      return categories.map((text, value) => ({ value, text: shortened(text, 24) })).filter(isShown);
    }
    if (tried && tried.length <= MOST_TRIED) return tried.map((value) => ({ value, text: formatX(value) }));
    if (logX) return logTicks(first, last);
    return fractions ? ticks(first, last, count, formatX) : wholeTicks(first, last, count); // rounds are integers
  }

  /** Add a group whose content is clipped to the plot area. */
  clip(image) {
    const id = `clip-${LineChart.count++}`;
    const { left, right, top, bottom } = this.frame;
    const path = svg("clipPath", { id }, image);
    svg("rect", { x: left - 1, y: top - 6, width: right - left + 4, height: bottom - top + 8 }, path);
    return svg("g", { "clip-path": `url(#${id})` }, image);
  }

  /** Draw the band over seeds and the published curve. */
  drawBackground(inside, one) {
    const key = { "data-key": one.key };
    if (one.low && one.hasBand !== false && !this.options.markers) {
      svg("path", { ...key, d: this.band(one), class: "band", fill: one.colour }, inside);
    }
    if (one.published) {
      const d = this.path(one.published.x, one.published.y);
      svg("path", { ...key, d, class: "published", stroke: one.colour }, inside);
    }
  }

  drawLine(inside, one) {
    for (const y of one.lines || [one.y]) {
      const single = y.filter((value) => value !== null).length === 1;
      const width = single ? 7 : one.lines ? 1.2 : one.width || 2;
      svg("path", {
        "data-key": one.key, class: "line", d: this.path(one.x, y), stroke: one.colour, "stroke-width": width,
        "stroke-dasharray": single ? null : one.dash || null, "stroke-linecap": single ? "round" : null,
      }, inside);
    }
  }

  drawMarkers(inside, one) {
    const { key, x, y, low, high, shift = 0 } = one;
    x.forEach((at, i) => {
      if (y[i] === null || (this.log && y[i] <= 0)) return;
      const about = { "data-key": key, stroke: colourAt(one, i) }, cx = this.px(at + shift);
      if (low && low[i] !== high[i] && !(this.log && low[i] <= 0)) {
        svg("path", { ...about, class: "whisker", d: `M${cx} ${this.py(low[i])}V${this.py(high[i])}` }, inside);
      }
      svg("circle", { ...about, cx, cy: this.py(y[i]), r: 4, fill: about.stroke }, inside);
    });
  }

  /** Return the SVG path of a curve; missing values, and on a log scale values up to 0, leave a gap. */
  path(x, y) {
    let d = "", open = false;
    for (let i = 0; i < x.length; i++) {
      if (y[i] === null || (this.log && y[i] <= 0)) { open = false; continue; }
      const at = `${this.px(x[i]).toFixed(1)} ${this.py(y[i]).toFixed(1)}`;
      d += open ? `L${at}` : `M${at}h.01`;
      open = true;
    }
    return d;
  }

  /** Return the SVG path of the band between low and high, with one closed part per range without gaps. */
  band({ x, low, high }) {
    const shown = x.map((_, i) => low[i] !== null && high[i] !== null && !(this.log && low[i] <= 0));
    const at = (i, y) => `${this.px(x[i]).toFixed(1)} ${this.py(y[i]).toFixed(1)}`;
    let d = "", upper = [], lower = [];
    for (let i = 0; i <= x.length; i++) {
      if (shown[i]) {
        upper.push(at(i, high));
        lower.unshift(at(i, low));
      } else if (upper.length) {
        d += `M${[...upper, ...lower].join("L")}Z`;
        upper = [];
        lower = [];
      }
    }
    return d;
  }

  drawMark(image, mark) {
    const { left, right, top, bottom } = this.frame;
    if ("y" in mark) {
      const y = this.py(mark.y);
      if (!(y >= top && y <= bottom)) return;
      svg("path", { d: `M${left} ${y}H${right}`, class: "mark", stroke: mark.colour || null }, image);
      svg("text", { x: right, y: y - 6, "text-anchor": "end" }, image, mark.label);
    } else {
      const x = this.px(mark.x), isRight = x > (left + right) / 2;
      if (x > right) svg("text", { x: right, y: top + 10, "text-anchor": "end" }, image, `${mark.label} →`);
      if (!(x >= left && x <= right)) return;
      svg("path", { d: `M${x} ${top}V${bottom}`, class: "mark", stroke: mark.colour || null }, image);
      const place = { x: x + (isRight ? -6 : 6), y: top + 10, "text-anchor": isRight ? "end" : "start" };
      svg("text", place, image, mark.label);
    }
  }

  /** Return the values at the crosshair, largest first. */
  valuesAtCrosshair() {
    const x = this.stops[this.at];
    const rows = [];
    for (const one of this.series) {
      const i = nearest(one.x, x);
      if (i === -1 || one.y[i] === null || x < one.x[0] || x > one.x[one.x.length - 1]) continue;
      const published = one.published && one.published.y[nearest(one.published.x, x)];
      rows.push({ one, colour: colourAt(one, i), y: one.y[i], low: one.low && one.low[i], high: one.high && one.high[i], published });
    }
    return { x, rows: rows.sort((a, b) => b.y - a.y) };
  }

  /** Return the key of the series within 16 pixels of the pointer, or null. */
  seriesAt(event) {
    if (this.at === null) return null;
    const y = event.clientY - this.plot.getBoundingClientRect().top;
    const distance = (row) => Math.abs(this.py(row.y) - y);
    const [closest] = this.valuesAtCrosshair().rows.sort((a, b) => distance(a) - distance(b));
    return closest && distance(closest) < 16 ? closest.one.key : null;
  }

  /** Draw the crosshair and the tooltip, and announce the values to screen readers if asked to. */
  drawCrosshair(announced) {
    this.layer.replaceChildren();
    this.tip.hidden = this.at === null;
    if (this.at === null) return;
    const { x, rows } = this.valuesAtCrosshair(), { formatX, formatY } = this.options;
    const at = this.px(x);
    svg("path", { d: `M${at} ${this.frame.top}V${this.frame.bottom}`, class: "cursor" }, this.layer);
    for (const { one, colour, y } of rows) {
      const cx = this.px(x + (one.shift || 0));
      if (!(this.log && y <= 0)) svg("circle", { cx, cy: this.py(y), r: 4, fill: colour }, this.layer);
    }
    const title = `${this.options.x} ${formatX(x)}`;
    const more = rows.length - MOST_IN_TIP;
    const shown = rows.slice(0, MOST_IN_TIP);
    const table = html("table", {}, ...shown.map(({ one, colour, y, low, high, published }) => html("tr", {},
      html("td", {}, swatch(colour, one.dash, one.isPoint)), html("td", {}, one.label), html("td", {}, formatY(y)),
      html("td", {}, [
        isNumber(low) && low !== high ? `${formatY(low)}–${formatY(high)}` : "",
        isNumber(published) ? `published ${formatY(published)}` : "",
      ].filter(Boolean).join("\n")))));
    this.tip.replaceChildren(html("b", {}, title), table, more > 0 ? `and ${more} more` : "");
    place(this.tip, this.plot, at, 16);
    const values = rows.map(({ one, y }) => `${one.label} ${formatY(y)}`).join("; ");
    if (announced) announce(`${title}: ${values || "no values"}`);
  }

  addListeners() {
    let start = null;
    const roundAt = (event) => {
      return this.xAt(event.clientX - this.plot.getBoundingClientRect().left);
    };
    const showValues = (event) => {
      this.at = this.stops.length ? nearest(this.stops, roundAt(event)) : null;
      this.drawCrosshair(false);
      if (this.options.highlight) this.highlight(this.seriesAt(event));
    };
    this.plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = { x: roundAt(event), client: event.clientX };
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener("pointermove", (event) => {
      showValues(event);
      if (!start) return;
      const [a, b] = [this.px(start.x), this.px(roundAt(event))].sort((p, q) => p - q);
      const { top, bottom } = this.frame;
      svg("rect", { x: a, y: top, width: b - a, height: bottom - top, class: "selection" }, this.layer);
    });
    this.plot.addEventListener("pointerup", (event) => {
      const from = start;
      start = null;
      if (!from) return;
      if (Math.abs(event.clientX - from.client) > 8) this.zoom([from.x, roundAt(event)].sort((p, q) => p - q));
      else showValues(event);
    });
    this.plot.addEventListener("pointercancel", () => { start = null; });
    const leave = () => {
      this.at = null;
      this.drawCrosshair(false);
      this.highlight(null);
    };
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") leave(); });
    this.plot.addEventListener("blur", leave);
    this.plot.addEventListener("dblclick", () => this.zoom(null));
    this.plot.addEventListener("keydown", (event) => this.handleKey(event));
  }

  handleKey(event) {
    const step = event.shiftKey ? 10 : 1, last = this.stops.length - 1;
    const start = { ArrowRight: 0, ArrowLeft: last, Home: 0, End: last }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
    if (start !== undefined) {
      if (this.at === null || event.key === "Home" || event.key === "End") this.at = start;
      else this.at = Math.min(last, Math.max(0, this.at + (event.key === "ArrowRight" ? step : -step)));
      this.drawCrosshair(true);
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      this.zoomAtCrosshair(event.key === "-" ? 2 : 0.5);
    } else if (event.key === "0") {
      this.zoom(null);
      announce("all values are shown");
    } else if (event.key === "Escape") {
      this.at = null;
      this.drawCrosshair(false);
    } else return;
    event.preventDefault();
  }

  /** Zoom around the crosshair, which stays at its position. */
  zoomAtCrosshair(factor) {
    const [first, last] = this.domain || this.full;
    const x = this.at === null ? (first + last) / 2 : this.stops[this.at];
    this.zoom([x - factor * (x - first), x + factor * (last - x)]);
    if (this.stops.length) this.at = nearest(this.stops, x);
    this.drawCrosshair(false);
    const [from, to] = this.domain || this.full;
    announce(`${this.options.x} ${this.options.formatX(from)} to ${this.options.formatX(to)}`);
  }
}
LineChart.count = 0;
