// The sections about clients: availability, staleness and participation.

function availability() {
  const scale = (most) => html("span", { class: "scale-note" }, "0%", html("span", { class: "scale" }), percent(most));
  const show = (run) => {
    const map = DATA.maps[run.map.number], { took_part: tookPart, most } = run.map;
    const available = titled("Available", scale(1)), participated = titled("Took part", scale(most));
    const status = run.status === "diverged" ? "diverged" : "is still running";
    const unknown = run.status === "finished"
      ? "This page has too many runs to show who took part; write a page about fewer runs to see it."
      : `Participation is known after a run is finished; this run ${status}.`;
    within("availability", "content").replaceChildren(
      html("div", { class: "pair" }, available, tookPart ? participated : caption(unknown)),
      ...(map.sample ? [caption(`Availability is ${map.sample}.`)] : []));
    new HeatMap(available.lastChild, "Availability of clients over rounds").show(map, map.available, 1, "available");
    if (!tookPart) return;
    new HeatMap(participated.lastChild, "Participation of clients over rounds").show(map, tookPart, most, "took part");
  };
  return () => {
    const runs = runsInSetting().filter((run) => run.map);
    if (runs.length) addRunList("availability", runs, show);
    else showSentence("availability", "No run in this setting recorded the availability of its clients.");
  };
}

function staleness() {
  const addChart = (box, label, axes) => {
    return new LineChart(box.lastChild, { label, zero: true, height: [220, 300], ...axes });
  };
  return () => {
    const runs = runsInSetting().filter((run) => run.staleness && run.staleness.rounds.length), hidden = new Set();
    if (!runs.length) return showSentence("staleness", "No run in this setting has clients.");
    const titles = ["Mean over clients", "Largest over clients", "Distribution over all clients and rounds"];
    const boxes = titles.map((title) => titled(title));
    const missing = listed(runs.filter((run) => !run.staleness.values).map((run) => run.label));
    const note = `The distribution is not shown for ${missing}: participation is known after a run is finished.`;
    const pair = html("div", { class: "pair" }, boxes[0], boxes[1]);
    within("staleness", "content").replaceChildren(pair, boxes[2], ...(missing ? [caption(note)] : []));
    const mean = addChart(boxes[0], "Mean staleness over rounds", {
      x: "round", y: "mean staleness", file: "mean-staleness",
    });
    const largest = addChart(boxes[1], "Largest staleness over rounds", {
      x: "round", y: "largest staleness", wholeY: true, file: "largest-staleness",
    });
    const distribution = addChart(boxes[2], "Share of clients and rounds by staleness", {
      x: "staleness", y: "share with at least this staleness", formatY: percent, file: "staleness-distribution",
    });
    const draw = () => drawStaleness(runs.filter((run) => !hidden.has(run.key)), mean, largest, distribution);
    const highlight = (key) => [mean, largest, distribution].forEach((chart) => chart.highlight(key));
    legend(within("staleness", "legend"), runs, hidden, draw, highlight);
    draw();
  };
}

function drawStaleness(runs, mean, largest, distribution) {
  const bounds = [...new Set(runs.map((run) => run.staleness.bound).filter(isNumber))];
  const marks = (axis) => bounds.map((bound) => ({ [axis]: bound, label: `Lemma 1: ${whole(bound)}` }));
  const lines = (x, y) => runs.filter((run) => run.staleness[x])
    .map((run) => ({ ...lineStyle(run), x: run.staleness[x], y: run.staleness[y] }));
  mean.show({ series: lines("rounds", "mean"), keepZoom: true });
  largest.show({ series: lines("rounds", "max"), marks: marks("y"), keepZoom: true });
  distribution.show({ series: lines("values", "at_least"), marks: marks("x"), keepZoom: true });
}

function participation() {
  return () => {
    const runs = runsInSetting().filter((run) => run.participation), hidden = new Set();
    const unknown = "No run in this setting has a known participation (it is known after a run is finished).";
    if (!runs.length) return showSentence("participation", unknown);
    const box = titled("Share of each client, in ascending order");
    within("participation", "content").replaceChildren(box, ...fairnessTable(runs), ...sharesByLabel(runs));
    const chart = new LineChart(box.lastChild, {
      label: "Participation of clients relative to an equal share", x: "share of clients",
      y: "multiple of an equal share", zero: true, fractions: true, formatX: percent, height: [220, 320],
      file: "participation",
    });
    const draw = () => {
      const shown = runs.filter((run) => !hidden.has(run.key));
      const line = ({ participation: { rank, times_fair: times } }) => ({ x: rank, y: times });
      const series = shown.map((run) => ({ ...lineStyle(run), ...line(run) }));
      chart.show({ series, marks: [{ y: 1, label: "equal share" }], keepZoom: true });
    };
    legend(within("participation", "legend"), runs, hidden, draw, (key) => chart.highlight(key));
    draw();
  };
}

/** Return a table of Jain's index and of the smallest and largest share per run. */
function fairnessTable(runs) {
  const cell = (name, content, i) => html(name, { class: i ? "number" : null }, content);
  const row = (name, cells) => html("tr", {}, ...cells.map((content, i) => cell(name, content, i)));
  const body = runs.map((run) => {
    const { jain, times_fair: times } = run.participation;
    const label = html("span", {}, swatch(run.colour, run.dash), run.label);
    return row("td", [label, jain.toFixed(3), `${plain(times[0])} ×`, `${plain(times[times.length - 1])} ×`]);
  });
  const head = row("th", ["algorithm", "Jain’s index", "smallest / equal share", "largest / equal share"]);
  const text = "Jain’s index is 1 if all clients took part equally often, 1/2 if half of the clients took part equally "
    + "often and the others never, and 1/N if only one client took part.";
  const table = html("table", {}, html("thead", {}, head), html("tbody", {}, ...body));
  return [caption(text), html("div", { class: "wide" }, table)];
}

/** Return a chart of each label's share of participation (bar) and of the clients (vertical line). */
function sharesByLabel(runs) {
  const known = runs.filter((run) => run.participation.by_label);
  if (!known.length) return [caption("The labels of these clients are not known.")];
  const body = html("tbody");
  const show = (key) => {
    const run = known.find((one) => String(one.key) === String(key));
    const { labels: names, clients, took_part: part } = run.participation.by_label;
    const most = Math.max(...clients, ...part), width = (share) => `${(100 * share) / most}%`;
    body.replaceChildren(...names.map((name, i) => {
      const bar = html("span", { class: "fill", style: `width: ${width(part[i])}; background: ${run.colour}` });
      const stroke = html("span", { class: "stroke", style: `left: calc(${width(clients[i])} - 1px)` });
      const track = html("td", {}, html("div", { class: "track" }, bar, stroke));
      return html("tr", {}, html("td", {}, `label ${name}`), track,
        html("td", { class: "number" }, percent(part[i], 1)), html("td", { class: "number" }, percent(clients[i], 1)));
    }));
  };
  show(known[0].key);
  const column = (text, i) => html("th", { class: i > 1 ? "number" : null }, text);
  const head = ["", "", "took part", "clients"].map(column);
  const table = html("table", { class: "bars" }, html("thead", {}, html("tr", {}, ...head)), body);
  const text = "Bars: the label’s share of all participations. Vertical lines: the label’s share of the clients, where "
    + "the bars would end if all clients took part equally often.";
  const runList = list("Run", known.map((run) => [run.key, run.label]), known[0].key, show);
  return [html("h3", {}, "Share of each label"), caption(text),
    html("div", { class: "controls" }, runList), html("div", { class: "wide" }, table)];
}
