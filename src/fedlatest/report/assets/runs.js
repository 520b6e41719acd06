// The runs of the selected setting, and parts that several sections use.

const STATUS = { running: " (still running)", diverged: " (diverged)" };
const chooser = document.getElementById("setting");

const within = (section, name) => document.querySelector(`#${section} .${name}`);
const lineStyle = ({ key, label, colour, dash, front }) => {
  return { key, label, colour, dash, front, width: front ? 2.6 : 1.8 };
};

/** Return the runs of the selected setting, in the order of the legend. */
function runsInSetting() {
  const { runs } = DATA.settings[chooser ? chooser.value : 0];
  return runs.map((i) => ({ ...DATA.runs[i], key: i, colour: `var(--run-${i})` }));
}

/** Add a list to select one run; the algorithm stays selected when the setting changes. */
function addRunList(section, runs, show) {
  const controls = within(section, "controls");
  const select = (key) => {
    const run = runs.find((one) => String(one.key) === String(key));
    controls.dataset.selected = run.label;
    show(run);
  };
  const selected = runs.find((run) => run.label === controls.dataset.selected) || runs[0];
  const names = runs.map((run) => [run.key, run.label + (STATUS[run.status] || "")]);
  controls.replaceChildren(list("Run", names, selected.key, select));
  select(selected.key);
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
