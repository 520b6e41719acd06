// The section Curves: metrics of all runs over rounds, wall time, bytes or virtual time.

const METRICS = {
  test_accuracy: ["test accuracy", fourDigits],
  train_loss: ["training loss", plain],
  test_loss: ["test loss", plain],
  train_accuracy: ["training accuracy", fourDigits],
};
const AXES = {
  round: ["rounds", "round", whole],
  seconds: ["wall time", "wall time (s)", plain],
  megabytes: ["bytes", "MB sent and received", plain],
  time: ["virtual time", "virtual time (s)", plain],
};
const MOST_BANDS = 12; // with more lines, bands would cover them

function curves() {
  const chart = new LineChart(within("curves", "chart"), {
    label: "Curves of the runs", x: "round", height: [260, 520], file: "curves",
  });
  const redraw = (keepZoom = true) => {
    const [text, formatY] = METRICS[STATE.metric], [, x, formatX] = AXES[STATE.x];
    const shown = runsInSetting().filter((run) => !STATE.hide.has(run.key));
    const missing = shown.filter((run) => !valuesOfAxis(run)).map((run) => run.label);
    const series = shown.filter(valuesOfAxis).map(curve).filter(Boolean);
    if (series.length > MOST_BANDS) for (const one of series) one.hasBand = false;
    chart.show({
      series, y: text, formatY, x, formatX, fractions: STATE.x !== "round", log: STATE.scale === "log", keepZoom,
    });
    within("curves", "content").textContent = missing.length
      ? `Not shown, because the quantity is not known (bytes are known after a run is finished): ${listed(missing)}.`
      : "";
  };
  const ranges = rangeControls(within("curves", "ranges"), chart);
  return () => {
    const runs = runsInSetting();
    repair();
    within("curves", "controls").replaceChildren(...curveControls(runs, redraw, ranges));
    const items = runs.map((run) => ({ ...run, label: run.label + (STATUS[run.status] || "") }));
    const change = () => { redraw(); select(); showHeadline(); };
    legend(within("curves", "legend"), items, STATE.hide, change, (key) => chart.highlight(key));
    redraw();
    ranges();
  };
}

/** Replace selections that this page does not have, such as those of a mistyped address. */
function repair() {
  if (!(STATE.metric in METRICS)) STATE.metric = "test_accuracy";
  if (!["round", ...DATA.axes].includes(STATE.x)) STATE.x = DATA.x;
}

/** Return the values of the selected x axis at a run's evaluations; null if they are not known. */
function valuesOfAxis(run) {
  return STATE.x === "round" ? run.rounds : run.axes[STATE.x];
}

/** Return the series of a run: mean and band over the selected seeds, or one line per seed. */
function curve(run) {
  const rows = run.curves[STATE.metric].filter((_, i) => !STATE.without.has(run.seeds[i]));
  if (!rows.length) return null;
  const publishedY = STATE.x === "round" && STATE.published === "shown" && run.published?.[STATE.metric];
  return {
    ...lineStyle(run), x: valuesOfAxis(run), ...overSeeds(rows),
    ...(STATE.seeds === "each" && { low: undefined, high: undefined, lines: rows }),
    published: publishedY ? { x: run.published.rounds, y: publishedY } : null,
  };
}

/** Return mean, lowest and highest of each column of the rows; null if a column has no number. */
function overSeeds(rows) {
  const columns = rows[0].map((_, i) => overValues(rows.map((row) => row[i])));
  const y = columns.map(({ mean }) => mean);
  return rows.length > 1 ? { y, low: columns.map(({ low }) => low), high: columns.map(({ high }) => high) } : { y };
}

function curveControls(runs, redraw, ranges) {
  const change = (name) => (value) => { select({ [name]: value }); redraw(); };
  const scale = choice("Scale", [["linear", "linear"], ["log", "log"]], STATE.scale, change("scale"));
  const metrics = Object.entries(METRICS).map(([name, [text]]) => [name, text]);
  const metric = choice("Metric", metrics, STATE.metric, (value) => {
    select({ metric: value });
    scale.querySelector(`[value=${value.endsWith("loss") ? "log" : "linear"}]`).click(); // losses on a log scale
  });
  const axes = ["round", ...DATA.axes].map((name) => [name, AXES[name][0]]);
  const axis = list("over", axes, STATE.x, (value) => {
    select({ x: value, range: "" });
    redraw(false);
    ranges();
  });
  const found = [metric, axis, scale], numbers = [...new Set(runs.flatMap((run) => run.seeds))].sort((a, b) => a - b);
  if (selectedSetting() === ALL && DATA.keys.length > 1) {
    found.push(list("Colour by", DATA.keys.map((key) => [key, key]), colourKey(runs), (value) => {
      select({ colour: value });
      redrawSections();
    }));
  }
  if (numbers.length > 1) {
    found.push(choice("Seeds", [["mean", "mean and range"], ["each", "each seed"]], STATE.seeds, change("seeds")));
    found.push(seedToggles(numbers, redraw));
  }
  if (runs.some((run) => run.published)) {
    const options = [["shown", "published (dashed)"], ["hidden", "runs only"]];
    found.push(choice("Published curves", options, STATE.published, change("published")));
  }
  return found;
}

function seedToggles(numbers, redraw) {
  const box = html("div", { class: "group seeds", role: "group", "aria-label": "Seeds" }, html("span", {}, "seeds"));
  for (const seed of numbers) {
    const pressed = () => String(!STATE.without.has(seed));
    const button = html("button", { type: "button", "aria-pressed": pressed(), "data-seed": seed }, String(seed));
    button.addEventListener("click", () => {
      if (!STATE.without.delete(seed)) STATE.without.add(seed);
      button.setAttribute("aria-pressed", pressed());
      select();
      redraw();
    });
    box.append(button);
  }
  return box;
}

/** Add two sliders and a button that zoom, for touch screens and keyboards. */
function rangeControls(box, chart) {
  const inputs = ["from", "to"].map((name) => html("input", { type: "range", name, autocomplete: "off" }));
  const outputs = inputs.map(() => html("output"));
  const showValues = () => inputs.forEach((input, i) => {
    outputs[i].textContent = AXES[STATE.x][2](input.valueAsNumber);
  });
  for (const input of inputs) {
    input.addEventListener("input", () => {
      const [from, to] = inputs.map((one) => one.valueAsNumber);
      showValues();
      if (from < to) chart.zoom([from, to]);
    });
  }
  const showRange = (domain) => {
    inputs.forEach((input, i) => { input.value = domain[i]; });
    showValues();
  };
  chart.onzoom = (domain) => {
    select({ range: chart.domain ? domain.map((x) => Number(x.toPrecision(5))).join("..") : "" });
    showRange(domain);
  };
  const names = inputs.map(() => html("span"));
  const labels = inputs.map((input, i) => html("label", {}, names[i], input, outputs[i]));
  const reset = html("button", { type: "button", class: "reset", onclick: () => chart.zoom(null) }, "Show all");
  box.append(...labels, reset);
  return () => {
    const [first, last] = chart.full, step = STATE.x === "round" ? 1 : (last - first) / 1000 || 1;
    for (const input of inputs) Object.assign(input, { min: first, max: last, step });
    names.forEach((name, i) => { name.textContent = `${inputs[i].name} ${AXES[STATE.x][1]}`; });
    const [from, to] = STATE.range.split("..").map(Number);
    if (from < to) chart.zoom([from, to]); else showRange(chart.full);
  };
}
