// What happened to the clients: when they were available, how stale they grew, how often they took part.

function availability() {
  const scale = (most) => html("span", { class: "scale-note" }, "0%", html("span", { class: "scale" }), percent(most));
  const show = (run) => {
    const map = DATA.maps[run.map.number], { took_part: tookPart, most } = run.map;
    const available = titled("Available", scale(1)), participated = titled("Took part", scale(most));
    const why = run.status === "diverged" ? "diverged" : "is still running";
    const unknown = `Who took part is known when a run is finished; this one ${why}.`;
    within("availability", "content").replaceChildren(
      html("div", { class: "pair" }, available, tookPart ? participated : caption(unknown)));
    new HeatMap(available.lastChild, "Availability of clients over rounds").show(map, map.available, 1, "available");
    if (!tookPart) return;
    new HeatMap(participated.lastChild, "Participation of clients over rounds").show(map, tookPart, most, "took part");
  };
  return () => {
    const runs = inSetting().filter((run) => run.map);
    if (runs.length) chooseRun("availability", runs, show);
    else leaveOut("availability", "No run here noted who its clients are.");
  };
}

function staleness() {
  const over = (box, label, axes) => new LineChart(box.lastChild, { label, zero: true, height: [220, 300], ...axes });
  return () => {
    const runs = inSetting().filter((run) => run.staleness && run.staleness.rounds.length), hidden = new Set();
    if (!runs.length) return leaveOut("staleness", "No run here has clients that could grow stale.");
    const titles = ["Mean over clients", "Largest over clients", "How stale, over all clients and rounds"];
    const boxes = titles.map((words) => titled(words));
    const rest = runs.filter((run) => !run.staleness.ages).map((run) => run.label).join(", ");
    const without = rest ? [caption(`Without ${rest}: who took part is known when a run is finished.`)] : [];
    const pair = html("div", { class: "pair" }, boxes[0], boxes[1]);
    within("staleness", "content").replaceChildren(pair, boxes[2], ...without);
    const mean = over(boxes[0], "Mean staleness over rounds", { x: "round", y: "mean staleness" });
    const largest = over(boxes[1], "Largest staleness over rounds", { x: "round", y: "largest staleness" });
    const spread = over(boxes[2], "Share of clients and rounds by staleness", {
      x: "staleness", y: "share at least so stale", formatY: percent,
    });
    const draw = () => drawStaleness(runs.filter((run) => !hidden.has(run.key)), mean, largest, spread);
    const point = (key) => [mean, largest, spread].forEach((chart) => chart.point(key));
    legend(within("staleness", "legend"), runs, hidden, draw, point);
    draw();
  };
}

function drawStaleness(runs, mean, largest, spread) {
  const bounds = [...new Set(runs.map((run) => run.staleness.bound).filter(isNumber))];
  const marks = (axis) => bounds.map((bound) => ({ [axis]: bound, label: `Lemma 1: ${whole(bound)}` }));
  const lines = (x, y) => runs.filter((run) => run.staleness[x])
    .map((run) => ({ ...look(run), x: run.staleness[x], y: run.staleness[y] }));
  mean.show({ series: lines("rounds", "mean"), keepZoom: true });
  largest.show({ series: lines("rounds", "max"), marks: marks("y"), keepZoom: true });
  spread.show({ series: lines("ages", "at_least"), marks: marks("x"), keepZoom: true });
}

function participation() {
  return () => {
    const runs = inSetting().filter((run) => run.participation), hidden = new Set();
    const unknown = "No run here has clients whose participation is known (it is when a run is finished).";
    if (!runs.length) return leaveOut("participation", unknown);
    const box = titled("Share of each client, from the least to the most");
    within("participation", "content").replaceChildren(box, ...evenness(runs), ...byLabel(runs));
    const chart = new LineChart(box.lastChild, {
      label: "Participation of clients relative to an equal share", x: "clients up to", y: "times an equal share",
      zero: true, fractions: true, formatX: percent, height: [220, 320],
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
function evenness(runs) {
  const cell = (name, content, i) => html(name, { class: i ? "number" : null }, content);
  const row = (name, cells) => html("tr", {}, ...cells.map((content, i) => cell(name, content, i)));
  const body = runs.map((run) => {
    const { jain, times_fair: times } = run.participation;
    const label = html("span", {}, swatch(run.colour, run.dash), run.label);
    return row("td", [label, jain.toFixed(3), `${plain(times[0])} ×`, `${plain(times[times.length - 1])} ×`]);
  });
  const head = row("th", ["algorithm", "Jain’s index", "least, of an equal share", "most, of an equal share"]);
  const words = "Jain’s index is 1 when all clients took part equally often, one half when it is as if only every "
    + "second one did, and 1/N when one client did everything.";
  const table = html("table", {}, html("thead", {}, head), html("tbody", {}, ...body));
  return [caption(words), html("div", { class: "wide" }, table)];
}

/** Each label's share of participation as a bar, its share of the clients as a stroke. */
function byLabel(runs) {
  const known = runs.filter((run) => run.participation.by_label);
  if (!known.length) return [caption("These clients are not known by label.")];
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
  const column = (words, i) => html("th", { class: i > 1 ? "number" : null }, words);
  const head = ["", "", "took part", "clients"].map(column);
  const table = html("table", { class: "bars" }, html("thead", {}, html("tr", {}, ...head)), body);
  const words = "Bars: the label’s share of all participations. Strokes: the label’s share of the clients, where the "
    + "bars would end if labels were treated alike.";
  const pick = list("Run", known.map((run) => [run.key, run.label]), known[0].key, show);
  return [html("h3", {}, "Share of each label"), caption(words),
    html("div", { class: "controls" }, pick), html("div", { class: "wide" }, table)];
}
