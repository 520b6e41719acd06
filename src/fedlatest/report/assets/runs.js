// The runs of the selected setting that pass the filter, and parts that several sections use.

const STATUS = { running: " (still running)", diverged: " (diverged)" };
const OVERLAY_DASHES = ["", "8 3", "2 3", "10 3 2 3", "5 3", "14 4", "2 6", "12 3 2 3 2 3"];
const PALETTE_SIZE = 10; // --label-0 ..

const within = (section, name) => document.querySelector(`#${section} .${name}`);
const lineStyle = ({ key, label, colour, dash, front }) => {
  return { key, label, colour, dash, front, width: front ? 2.6 : 1.8 };
};

/** Return the label of the selected setting, or ALL. */
function selectedSetting() {
  const { settings } = DATA, labels = settings.map(({ label }) => label);
  if (settings.length > 1 && STATE.setting === ALL) return ALL;
  if (labels.includes(STATE.setting)) return STATE.setting;
  const sizes = settings.map(({ runs }) => runs.length), most = Math.max(...sizes);
  return most === 1 && settings.length > 1 ? ALL : labels[sizes.indexOf(most)];
}

/** Return the runs of the selected setting that pass the filter, in the order of the legend. */
function runsInSetting() {
  const selected = selectedSetting(), isOverlay = selected === ALL;
  const chosen = DATA.settings.filter(({ label }) => isOverlay || label === selected);
  const numbers = [...new Set(chosen.flatMap(({ runs }) => runs))].filter((i) => passesFilter(DATA.runs[i]));
  const runs = numbers.map((i) => ({ ...DATA.runs[i], key: DATA.runs[i].id, colour: `var(--run-${i})` }));
  return isOverlay ? withOverlayStyles(runs.map((run) => ({ ...run, label: run.full }))) : runs;
}

/** Return the key whose values have different colours when settings are overlaid: selected, or one that varies. */
function colourKey(runs) {
  if (DATA.keys.includes(STATE.colour)) return STATE.colour;
  const varies = (key) => new Set(runs.map((run) => run.values[key])).size > 1;
  return ["algorithm", ...DATA.keys].find(varies) || DATA.keys[0];
}

/** Give the runs of all settings one colour per value of a key, and different dashes within a colour. */
function withOverlayStyles(runs, key = colourKey(runs)) {
  const values = [...new Set(runs.map((run) => run.values[key]))].sort(byValue), used = new Map(), first = new Map();
  return runs.map((run) => {
    const value = run.values[key], count = used.get(value) || 0;
    used.set(value, count + 1);
    if (!first.has(value)) first.set(value, run.colour);
    const colour = key === "algorithm" ? first.get(value) : `var(--label-${values.indexOf(value) % PALETTE_SIZE})`;
    return { ...run, colour, dash: OVERLAY_DASHES[count % OVERLAY_DASHES.length] };
  });
}

/** Compare numbers by value and texts alphabetically; numbers come before texts, missing values last. */
function byValue(a, b) {
  const rank = (value) => (isNumber(value) ? 0 : value === undefined || value === null || value === "" ? 2 : 1);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  return isNumber(a) ? a - b : String(a).localeCompare(String(b));
}

/**
 * Return whether a run passes the filter: every word of it must hold. `key=value` compares a value, `key>1` and `key<1`
 * compare numbers (values and the columns of the table), other words must be part of the run's name, folder, status or
 * values. A leading `-` negates a word.
 */
function passesFilter(run, filter = STATE.filter) {
  const text = [run.full, run.algorithm, run.folder, run.status, ...Object.values(run.values)].join(" ").toLowerCase();
  return filter.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const isNegated = word.length > 1 && word.startsWith("-");
    return holds(run, text, isNegated ? word.slice(1) : word) !== isNegated;
  });
}

function holds(run, text, word) {
  const [, key, sign, wanted] = word.match(/^([\w.]+)([=<>])(.+)$/) || [];
  const known = key && (Object.entries(run.values).find(([name]) => name.toLowerCase() === key)?.[1]
    ?? (run.summary[key] && overValues(run.summary[key]).mean));
  if (known === undefined) return text.includes(word);
  if (known === null) return false;
  if (sign === "=") return String(known).toLowerCase() === wanted || (isNumber(known) && known === Number(wanted));
  return sign === "<" ? known < Number(wanted) : known > Number(wanted);
}

/** Add a list to select one run; the algorithm stays selected when the setting changes. */
function addRunList(section, runs, show) {
  const controls = within(section, "controls");
  const choose = (key) => {
    const run = runs.find((one) => String(one.key) === String(key));
    controls.dataset.selected = run.label;
    show(run);
  };
  const selected = runs.find((run) => run.label === controls.dataset.selected) || runs[0];
  const names = runs.map((run) => [run.key, run.label + (STATUS[run.status] || "")]);
  controls.replaceChildren(list("Run", names, selected.key, choose));
  choose(selected.key);
}

/** Replace the content of a section by a sentence. */
function showSentence(section, text) {
  for (const name of ["controls", "legend"]) within(section, name)?.replaceChildren();
  within(section, "content").replaceChildren(caption(text));
}

function caption(text) {
  return html("p", { class: "caption" }, text);
}

/** Return a heading and, as the last child, an element for a chart. */
function titled(text, ...more) {
  return html("div", {}, html("h3", {}, text, ...more), html("div", { class: "chart" }));
}
