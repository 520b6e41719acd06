// The section Hyperparameters: a number that summarises each run over a value in which runs differ.

const LOG_RATIO = 20; // values that span more than this ratio are drawn on a logarithmic axis
const SHIFT = 0.12; // between the points of a category, so that they do not cover each other

function parameters() {
  let chart = null;
  return () => {
    const keys = DATA.keys.filter((key) => lines(runsOfPage(), key).length);
    document.getElementById("parameters").hidden = !keys.length;
    for (const link of document.querySelectorAll(".links a[href='#parameters']")) link.hidden = !keys.length;
    if (!keys.length) return;
    const isNumeric = (name) => DATA.runs.every((run) => !(name in run.values) || isNumber(run.values[name]));
    const numValues = (name) => new Set(DATA.runs.map((run) => run.values[name])).size;
    const [most] = [...keys].sort((a, b) => isNumeric(b) - isNumeric(a) || numValues(b) - numValues(a));
    const key = keys.includes(STATE.key) ? STATE.key : most;
    if (!(STATE.summary in DATA.summaries)) STATE.summary = DEFAULTS.summary;
    const tried = [...new Set(runsOfPage().map((run) => run.values[key]).filter(isNumber))].sort((a, b) => a - b);
    const isPositive = isNumeric(key) && tried[0] > 0, spansDecades = tried[tried.length - 1] > LOG_RATIO * tried[0];
    const scale = STATE.keyscale || (spansDecades ? "log" : "linear");
    const change = (name) => (value) => { select({ [name]: value }); redrawSections("parameters"); };
    within("parameters", "controls").replaceChildren(
      list("Show", Object.entries(DATA.summaries), STATE.summary, change("summary")),
      list("over", keys.map((name) => [name, name]), key, change("key")),
      ...(isPositive ? [choice("Scale of the value", [["linear", "linear"], ["log", "log"]], scale,
        change("keyscale"))] : []));
    if (!chart) {
      const box = html("div", { class: "chart" });
      within("parameters", "content").replaceChildren(box);
      const options = { label: "Runs over a value", markers: true, fractions: true, file: "hyperparameter" };
      chart = new LineChart(box, options);
    }
    drawParameters(chart, key, isNumeric(key) ? tried : null, isPositive && scale === "log");
  };
}

/** Return all runs of the page that pass the filter. */
function runsOfPage() {
  const runs = DATA.runs.map((run, i) => ({ ...run, key: run.id, colour: `var(--run-${i})` }));
  return runs.filter((run) => passesFilter(run));
}

/** Return the keys besides one; for the algorithm without those of which each algorithm has one value, such as its own. */
function otherKeys(runs, key) {
  const known = new Map();
  const isOfAlgorithm = (other) => runs.every(({ values }) => {
    const of = `${other} ${values.algorithm}`;
    if (!known.has(of)) known.set(of, values[other]);
    return known.get(of) === values[other];
  });
  return DATA.keys.filter((other) => other !== key && !(key === "algorithm" && isOfAlgorithm(other)));
}

/** Group runs that are equal in all values but that of a key; groups in which it does not vary are left out. */
function lines(runs, key) {
  const others = otherKeys(runs, key), groups = new Map();
  for (const run of runs) {
    if (!(key in run.values)) continue;
    const same = JSON.stringify(others.map((other) => run.values[other] ?? null));
    groups.set(same, [...(groups.get(same) || []), run]);
  }
  const values = (group) => new Set(group.map((run) => run.values[key]));
  const order = (a, b) => others.reduce((found, other) => found || byValue(a[0].values[other], b[0].values[other]), 0);
  return [...groups.values()].filter((group) => values(group).size > 1).sort(order);
}

/** Draw the runs over a key; `tried` are its values in ascending order if they are numbers, and null for categories. */
function drawParameters(chart, key, tried, logX) {
  const groups = lines(runsOfPage(), key), hidden = new Set();
  const categories = tried ? null : [...new Set(groups.flat().map((run) => String(run.values[key])))].sort(byValue);
  const differing = otherKeys(groups.flat(), key)
    .filter((other) => new Set(groups.map(([run]) => run.values[other])).size > 1);
  const name = (run) => differing.filter((other) => other in run.values)
    .map((other) => (isNumber(run.values[other]) ? `${other}=${run.values[other]}` : run.values[other])).join(" · ");
  const first = groups.map(([run], i) => ({ ...run, key: i, label: name(run) || "all runs", front: false }));
  const items = withOverlayStyles(first, differing.includes("algorithm") ? "algorithm" : differing[0]);
  const position = (run) => (categories ? categories.indexOf(String(run.values[key])) : run.values[key]);
  const series = items.map((item, i) => {
    const runs = [...groups[i]].sort((a, b) => position(a) - position(b));
    const found = runs.map((run) => overValues(run.summary[STATE.summary]));
    const column = (which) => found.map((one) => one[which]);
    return {
      ...lineStyle(item), x: runs.map(position), y: column("mean"), low: column("low"), high: column("high"),
      ...(categories && { isPoint: true, shift: Math.min(SHIFT, 0.6 / items.length) * (i - (items.length - 1) / 2) }),
      ...(categories && items.length === 1 && { colours: runs.map((run) => run.colour) }),
    };
  });
  const formatX = categories ? (x) => categories[Math.round(x)] ?? "" : plain;
  const draw = () => chart.show({
    series: series.filter((one) => !hidden.has(one.key)), x: key, y: DATA.summaries[STATE.summary], formatX,
    formatY: STATE.summary.endsWith("accuracy") || STATE.summary === "swing" ? fourDigits : plain, categories, logX, tried,
  });
  const named = items.length > 1 ? items.map((item) => ({ ...item, isPoint: categories !== null })) : [];
  legend(within("parameters", "legend"), named, hidden, draw, (one) => chart.highlight(one));
  draw();
}
