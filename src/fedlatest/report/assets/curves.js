// The sections Curves (metrics of all runs) and Labels (accuracy per label of one run).

const METRICS = {
  test_accuracy: ["test accuracy", fourDigits],
  train_loss: ["training loss", plain],
  test_loss: ["test loss", plain],
  train_accuracy: ["training accuracy", fourDigits],
};
const LABEL_DASHES = ["", "8 3", "2 3", "10 3 2 3", "5 3"];

function curves() {
  const state = { metric: "test_accuracy", scale: "linear", seeds: "mean", published: "shown" };
  const hidden = new Set(), seedsOff = new Set();
  const chart = new LineChart(within("curves", "chart"), { label: "Curves of the runs over rounds", x: "round" });
  const redraw = (keepZoom = true) => {
    const [text, formatY] = METRICS[state.metric];
    const shown = runsInSetting().filter((run) => !hidden.has(run.key));
    const series = shown.map((run) => curve(run, state, seedsOff)).filter(Boolean);
    chart.show({ series, y: text, formatY, log: state.scale === "log", keepZoom });
  };
  const controls = curveControls(state, seedsOff, redraw);
  const ranges = rangeControls(within("curves", "ranges"), chart);
  return () => {
    const runs = runsInSetting();
    hidden.clear();
    seedsOff.clear();
    within("curves", "controls").replaceChildren(...controls(runs));
    const items = runs.map((run) => ({ ...run, label: run.label + (STATUS[run.status] || "") }));
    legend(within("curves", "legend"), items, hidden, redraw, (key) => chart.highlight(key));
    redraw(false);
    ranges();
  };
}

/** Return the series of a run: mean and band over the selected seeds, or one line per seed. */
function curve(run, { metric, seeds, published }, seedsOff) {
  const rows = run.curves[metric].filter((_, i) => !seedsOff.has(run.seeds[i]));
  if (!rows.length) return null;
  const publishedY = published === "shown" && run.published && run.published[metric];
  return {
    ...lineStyle(run), x: run.rounds, ...overSeeds(rows),
    ...(seeds === "each" && { low: undefined, high: undefined, lines: rows }),
    published: publishedY ? { x: run.published.rounds, y: publishedY } : null,
  };
}

/** Return mean, lowest and highest of each column of the rows; null if a column has no number. */
function overSeeds(rows) {
  const y = [], low = [], high = [];
  for (let i = 0; i < rows[0].length; i++) {
    const values = rows.map((row) => row[i]).filter((value) => value !== null);
    y.push(values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
    low.push(values.length ? Math.min(...values) : null);
    high.push(values.length ? Math.max(...values) : null);
  }
  return rows.length > 1 ? { y, low, high } : { y };
}

/** Return a function that returns the controls for some runs. */
function curveControls(state, seedsOff, redraw) {
  const change = (name) => (value) => { state[name] = value; redraw(); };
  const scale = choice("Scale", [["linear", "linear"], ["log", "log"]], state.scale, change("scale"));
  const metrics = Object.entries(METRICS).map(([name, [text]]) => [name, text]);
  const metric = choice("Metric", metrics, state.metric, (value) => {
    state.metric = value;
    scale.querySelector(`[value=${value.endsWith("loss") ? "log" : "linear"}]`).click(); // losses on a log scale
  });
  return (runs) => {
    const found = [metric, scale], numbers = [...new Set(runs.flatMap((run) => run.seeds))].sort((a, b) => a - b);
    if (numbers.length > 1) {
      found.push(choice("Seeds", [["mean", "mean and range"], ["each", "each seed"]], state.seeds, change("seeds")));
      found.push(seedToggles(numbers, seedsOff, redraw));
    }
    if (runs.some((run) => run.published)) {
      const options = [["shown", "published (dashed)"], ["hidden", "runs only"]];
      found.push(choice("Published curves", options, state.published, change("published")));
    }
    return found;
  };
}

function seedToggles(numbers, seedsOff, redraw) {
  const box = html("div", { class: "group seeds", role: "group", "aria-label": "Seeds" }, html("span", {}, "seeds"));
  for (const seed of numbers) {
    const button = html("button", { type: "button", "aria-pressed": "true", "data-seed": seed }, String(seed));
    button.addEventListener("click", () => {
      if (!seedsOff.delete(seed)) seedsOff.add(seed);
      button.setAttribute("aria-pressed", String(!seedsOff.has(seed)));
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
  const showValues = () => inputs.forEach((input, i) => { outputs[i].textContent = whole(input.valueAsNumber); });
  for (const input of inputs) {
    input.addEventListener("input", () => {
      const [from, to] = inputs.map((one) => one.valueAsNumber);
      showValues();
      if (from < to) chart.zoom([from, to]);
    });
  }
  chart.onzoom = (domain) => {
    inputs.forEach((input, i) => { input.value = domain[i]; });
    showValues();
  };
  const labels = inputs.map((input, i) => html("label", {}, `${input.name} round`, input, outputs[i]));
  const reset = html("button", { type: "button", class: "reset", onclick: () => chart.zoom(null) }, "Show all rounds");
  box.append(...labels, reset);
  return () => {
    for (const input of inputs) Object.assign(input, { min: chart.full[0], max: chart.full[1] });
    chart.onzoom(chart.full);
  };
}

function labels() {
  const show = (run) => {
    const { rounds, names, accuracy } = run.labels, box = html("div", { class: "chart" }), hidden = new Set();
    within("labels", "content").replaceChildren(box);
    const chart = new LineChart(box, {
      label: `Accuracy per label of ${run.label}`, x: "round", y: "test accuracy", formatY: fourDigits, highlight: true,
    });
    const items = names.map((name, i) => ({
      key: i, label: `label ${name}`, x: rounds, y: accuracy[i], width: 1.8,
      colour: `var(--label-${i % 10})`, dash: LABEL_DASHES[(i + Math.floor(i / 10)) % LABEL_DASHES.length],
    }));
    const draw = () => chart.show({ series: items.filter((item) => !hidden.has(item.key)), keepZoom: true });
    legend(within("labels", "legend"), items, hidden, draw, (key) => chart.highlight(key));
    draw();
  };
  return () => {
    const runs = runsInSetting().filter((run) => run.labels && run.labels.rounds.length);
    if (runs.length) addRunList("labels", runs, show);
    else showSentence("labels", "No run in this setting recorded its accuracy per label.");
  };
}
