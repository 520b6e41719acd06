// The sections: what each one shows of the chosen setting. A section is drawn when it first comes near the screen.

const METRICS = {
  test_accuracy: ["test accuracy", fourDigits],
  train_loss: ["training loss", plain],
  test_loss: ["test loss", plain],
  train_accuracy: ["training accuracy", fourDigits],
};
const LABEL_DASHES = ["", "8 3", "2 3", "10 3 2 3", "5 3"];
const chooser = document.getElementById("setting");

const setting = () => DATA.settings[chooser ? chooser.value : 0];
const inSetting = () => setting().runs.map((i) => ({ ...DATA.runs[i], key: i, colour: `var(--run-${i})` }));
const look = ({ key, label, colour, dash, front }) => ({ key, label, colour, dash, front, width: front ? 2.6 : 1.8 });
const within = (section, name) => document.querySelector(`#${section} .${name}`);

/** Mean, lowest and highest over rows, column by column; null where no row has a number. */
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

function curves() {
  const state = { metric: "test_accuracy", scale: "linear", seeds: "mean", published: "shown" };
  const hidden = new Set(), seedsOff = new Set();
  const chart = new LineChart(within("curves", "chart"), { label: "Curves of the runs over rounds", x: "round" });
  const again = (keepZoom = true) => {
    const runs = inSetting().filter((run) => !hidden.has(run.key)), [words, formatY] = METRICS[state.metric];
    const series = runs.map((run) => curve(run, state, seedsOff)).filter(Boolean);
    chart.show({ series, y: words, formatY, log: state.scale === "log", keepZoom });
  };
  const change = (name) => (value) => { state[name] = value; again(); };
  const scale = choice("Scale", [["linear", "linear"], ["log", "log"]], "linear", change("scale"));
  const metric = choice("Metric", Object.entries(METRICS).map(([name, [words]]) => [name, words]), state.metric, (value) => {
    state.metric = value;
    scale.querySelector(`[value=${value.endsWith("loss") ? "log" : "linear"}]`).click(); // what shows each best
  });
  const ranges = rangeControls(within("curves", "ranges"), chart);
  const draw = () => {
    const runs = inSetting(), seeds = [...new Set(runs.flatMap((run) => run.seeds))].sort((a, b) => a - b);
    hidden.clear();
    seedsOff.clear();
    const controls = [metric, scale];
    if (seeds.length > 1) {
      const toggles = html("div", { class: "group seeds", role: "group", "aria-label": "Seeds" }, html("span", {}, "seeds"));
      for (const seed of seeds) toggles.append(toggle(String(seed), (on) => { if (on) seedsOff.delete(seed); else seedsOff.add(seed); again(); }));
      controls.push(choice("Seeds", [["mean", "mean and band"], ["each", "each seed"]], state.seeds, change("seeds")), toggles);
    }
    if (runs.some((run) => run.published)) controls.push(choice("Published curves", [["shown", "published (dashed)"], ["hidden", "ours only"]], state.published, change("published")));
    within("curves", "controls").replaceChildren(...controls);
    legend(within("curves", "legend"), runs, hidden, again, (key) => chart.point(key));
    again(false);
    ranges();
  };
  return draw;
}

function curve(run, { metric, seeds, published }, seedsOff) {
  const rows = run.curves[metric].filter((_, i) => !seedsOff.has(run.seeds[i]));
  if (!rows.length) return null;
  const theirs = published === "shown" && run.published && run.published[metric];
  return {
    ...look(run), x: run.rounds, ...overSeeds(rows),
    ...(seeds === "each" && { low: undefined, high: undefined, lines: rows }),
    published: theirs ? { x: run.published.rounds, y: theirs } : null,
  };
}

function toggle(words, change) {
  const button = html("button", { type: "button", "aria-pressed": "true", "data-seed": words }, words);
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    change(on);
  });
  return button;
}

/** Two sliders and a button that zoom: for fingers, and for those who do not drag. */
function rangeControls(box, chart) {
  const inputs = ["from", "to"].map((name) => html("input", { type: "range", name, autocomplete: "off" }));
  const outputs = inputs.map(() => html("output"));
  const tell = () => inputs.forEach((input, i) => { outputs[i].textContent = whole(input.valueAsNumber); });
  inputs.forEach((input) => input.addEventListener("input", () => {
    const [from, to] = inputs.map((one) => one.valueAsNumber);
    tell();
    if (from < to) chart.zoom([from, to]);
  }));
  chart.onzoom = (domain) => { inputs.forEach((input, i) => { input.value = domain[i]; }); tell(); };
  const labels = inputs.map((input, i) => html("label", {}, `${input.name} round`, input, outputs[i]));
  box.append(...labels, html("button", { type: "button", class: "reset", onclick: () => chart.zoom(null) }, "Show all rounds"));
  return () => {
    for (const input of inputs) Object.assign(input, { min: chart.full[0], max: chart.full[1] });
    chart.onzoom(chart.full);
  };
}

/** A list of runs to choose one from; it keeps the algorithm when the setting changes. */
function chooseRun(section, runs, show) {
  const before = within(section, "controls").dataset.chosen;
  const chosen = runs.find((run) => run.label === before) || runs[0];
  const pick = (key) => {
    const run = runs.find((one) => String(one.key) === String(key));
    within(section, "controls").dataset.chosen = run.label;
    show(run);
  };
  const names = runs.map((run) => [run.key, run.label + (run.status === "running" ? " (still running)" : run.status === "diverged" ? " (diverged)" : "")]);
  within(section, "controls").replaceChildren(list("Run", names, chosen.key, pick));
  pick(chosen.key);
}

function leaveOut(section, words) {
  for (const name of ["controls", "legend"]) within(section, name)?.replaceChildren();
  within(section, "content").replaceChildren(html("p", { class: "caption" }, words));
}

function titled(words, ...children) {
  return html("div", {}, html("h3", {}, words, ...children), html("div", { class: "chart" }));
}

function availability() {
  const scale = (most) => html("span", { class: "scale-note" }, "0%", html("span", { class: "scale" }), percent(most));
  const show = (run) => {
    const map = DATA.maps[run.map.number];
    const parts = [titled("Available", scale(1))];
    if (run.map.took_part) parts.push(titled("Took part", scale(run.map.most)));
    else parts.push(html("p", { class: "caption" }, `Who took part is known when a run is finished; this one ${run.status === "diverged" ? "diverged" : "is still running"}.`));
    within("availability", "content").replaceChildren(html("div", { class: "pair" }, ...parts));
    new HeatMap(parts[0].lastChild, "Availability of clients over rounds; arrow keys move").show(map, map.available, 1, "available");
    if (run.map.took_part) new HeatMap(parts[1].lastChild, "Participation of clients over rounds; arrow keys move").show(map, run.map.took_part, run.map.most, "took part");
  };
  return () => {
    const runs = inSetting().filter((run) => run.map);
    if (runs.length) chooseRun("availability", runs, show);
    else leaveOut("availability", "No run here noted who its clients are.");
  };
}

function staleness() {
  return () => {
    const runs = inSetting().filter((run) => run.staleness && run.staleness.rounds.length), hidden = new Set();
    if (!runs.length) return leaveOut("staleness", "No run here has clients that could grow stale.");
    const boxes = [titled("Mean over clients"), titled("Largest over clients"), titled("How stale, over all clients and rounds")];
    const rest = runs.filter((run) => !run.staleness.ages).map((run) => run.label);
    const words = rest.length ? html("p", { class: "caption" }, `Without ${rest.join(", ")}: who took part is known when a run is finished.`) : "";
    within("staleness", "content").replaceChildren(html("div", { class: "pair" }, boxes[0], boxes[1]), boxes[2], words);
    const over = (box, label, y, options = {}) => new LineChart(box.lastChild, { label, x: "round", y, zero: true, height: [220, 300], ...options });
    const mean = over(boxes[0], "Mean staleness over rounds", "mean staleness");
    const largest = over(boxes[1], "Largest staleness over rounds", "largest staleness");
    const spread = over(boxes[2], "Share of clients and rounds by staleness", "share at least so stale", { x: "staleness", formatY: percent });
    const draw = () => {
      const shown = runs.filter((run) => !hidden.has(run.key));
      const bounds = [...new Set(shown.map((run) => run.staleness.bound).filter((bound) => bound !== null))];
      const line = (name) => shown.map((run) => ({ ...look(run), x: run.staleness.rounds, y: run.staleness[name] }));
      mean.show({ series: line("mean"), keepZoom: true });
      largest.show({ series: line("max"), marks: bounds.map((bound) => ({ y: bound, label: `Lemma 1: ${whole(bound)}` })), keepZoom: true });
      const known = shown.filter((run) => run.staleness.ages).map((run) => ({ ...look(run), x: run.staleness.ages, y: run.staleness.at_least }));
      spread.show({ series: known, marks: bounds.map((bound) => ({ x: bound, label: `Lemma 1: ${whole(bound)}` })), keepZoom: true });
    };
    const charts = [mean, largest, spread];
    legend(within("staleness", "legend"), runs, hidden, draw, (key) => charts.forEach((chart) => chart.point(key)));
    draw();
  };
}

function participation() {
  return () => {
    const runs = inSetting().filter((run) => run.participation), hidden = new Set();
    if (!runs.length) return leaveOut("participation", "No run here has clients whose participation is known (it is when a run is finished).");
    const box = titled("Share of each client, from the least to the most");
    const table = html("div", { class: "wide" });
    within("participation", "content").replaceChildren(box, evenness(table, runs), byLabel(runs));
    const chart = new LineChart(box.lastChild, {
      label: "Participation of clients relative to an equal share", x: "clients up to", y: "times an equal share", zero: true, fractions: true, formatX: percent, height: [220, 320],
    });
    const draw = () => {
      const shown = runs.filter((run) => !hidden.has(run.key));
      const series = shown.map((run) => ({ ...look(run), x: run.participation.rank, y: run.participation.times_fair }));
      chart.show({ series, marks: [{ y: 1, label: "equal shares" }], keepZoom: true });
    };
    legend(within("participation", "legend"), runs, hidden, draw, (key) => chart.point(key));
    draw();
  };
}

/** How even participation was, in numbers. */
function evenness(box, runs) {
  const row = (name, cells) => html("tr", {}, ...cells.map((cell, i) => html(name, { class: i ? "number" : null, scope: name === "th" ? "col" : null }, cell)));
  const body = runs.map((run) => {
    const { jain, times_fair: times } = run.participation;
    return row("td", [html("span", {}, swatch(run.colour, run.dash), run.label), jain.toFixed(3), `${plain(times[0])} ×`, `${plain(times[times.length - 1])} ×`]);
  });
  box.append(html("table", {}, html("thead", {}, row("th", ["algorithm", "Jain’s index", "least, of an equal share", "most, of an equal share"])), html("tbody", {}, ...body)));
  const words = "Jain’s index is 1 when all clients took part equally often, one half when it is as if only every second one did, and 1/N when one client did everything.";
  return html("div", {}, html("p", { class: "caption" }, words), box);
}

/** Each label's share of participation as a bar, its share of the clients as a stroke. */
function byLabel(runs) {
  const known = runs.filter((run) => run.participation.by_label);
  if (!known.length) return html("p", { class: "caption" }, "These clients are not known by label.");
  const body = html("tbody");
  const show = (key) => {
    const run = known.find((one) => String(one.key) === String(key)), { labels, clients, took_part: part } = run.participation.by_label;
    const most = Math.max(...clients, ...part);
    body.replaceChildren(...labels.map((label, i) => html("tr", {},
      html("td", {}, `label ${label}`),
      html("td", {}, html("div", { class: "track" },
        html("i", { style: `width: ${(100 * part[i]) / most}%; background: ${run.colour}` }), html("u", { style: `left: calc(${(100 * clients[i]) / most}% - 1px)` }))),
      html("td", { class: "number" }, percent(part[i])), html("td", { class: "number" }, percent(clients[i])))));
  };
  const head = html("thead", {}, html("tr", {}, ...["", "", "took part", "clients"].map((words, i) => html("th", { scope: "col", class: i > 1 ? "number" : null }, words))));
  const pick = list("Run", known.map((run) => [run.key, run.label]), known[0].key, show);
  show(known[0].key);
  return html("div", {}, html("h3", {}, "Share of each label"), html("p", { class: "caption" }, "Bars: the label’s share of all participations. Strokes: the label’s share of the clients, where the bars would end if labels were treated alike."),
    html("div", { class: "controls" }, pick), html("div", { class: "wide" }, html("table", { class: "bars" }, head, body)));
}

function labels() {
  const show = (run) => {
    const box = html("div", { class: "chart" }), { rounds, names, accuracy } = run.labels, hidden = new Set();
    within("labels", "content").replaceChildren(box);
    const chart = new LineChart(box, { label: `Accuracy per label of ${run.label}`, x: "round", y: "test accuracy", formatY: fourDigits, highlight: true });
    const items = names.map((name, i) => ({
      key: i, label: `label ${name}`, colour: `var(--label-${i % 10})`, dash: LABEL_DASHES[(i + Math.floor(i / 10)) % 5], width: 1.8, x: rounds, y: accuracy[i],
    }));
    const draw = () => chart.show({ series: items.filter((item) => !hidden.has(item.key)), keepZoom: true });
    legend(within("labels", "legend"), items, hidden, draw, (key) => chart.point(key));
    draw();
  };
  return () => {
    const runs = inSetting().filter((run) => run.labels && run.labels.rounds.length);
    if (runs.length) chooseRun("labels", runs, show);
    else leaveOut("labels", "No run here noted its accuracy per label.");
  };
}

const sections = Object.entries({ curves, availability, staleness, participation, labels }).map(([id, make]) => {
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
window.addEventListener("beforeprint", () => sections.filter(({ drawn }) => !drawn).forEach((section) => section.draw()));
if (chooser) chooser.addEventListener("change", () => sections.filter(({ drawn }) => drawn).forEach((section) => section.draw()));

const links = [...document.querySelectorAll(".links a")];
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
