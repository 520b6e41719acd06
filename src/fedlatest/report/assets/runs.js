// The runs of the chosen setting, and what all sections do with them.

const STATUS = { running: " (still running)", diverged: " (diverged)" };
const chooser = document.getElementById("setting");

const within = (section, name) => document.querySelector(`#${section} .${name}`);
const look = ({ key, label, colour, dash, front }) => ({ key, label, colour, dash, front, width: front ? 2.6 : 1.8 });

/** The runs of the chosen setting, in the order of their legend. */
function inSetting() {
  const { runs } = DATA.settings[chooser ? chooser.value : 0];
  return runs.map((i) => ({ ...DATA.runs[i], key: i, colour: `var(--run-${i})` }));
}

/** A list of runs to choose one from; it keeps the algorithm when the setting changes. */
function chooseRun(section, runs, show) {
  const controls = within(section, "controls");
  const pick = (key) => {
    const run = runs.find((one) => String(one.key) === String(key));
    controls.dataset.chosen = run.label;
    show(run);
  };
  const chosen = runs.find((run) => run.label === controls.dataset.chosen) || runs[0];
  const names = runs.map((run) => [run.key, run.label + (STATUS[run.status] || "")]);
  controls.replaceChildren(list("Run", names, chosen.key, pick));
  pick(chosen.key);
}

/** A sentence in place of what a section would show. */
function leaveOut(section, words) {
  for (const name of ["controls", "legend"]) within(section, name)?.replaceChildren();
  within(section, "content").replaceChildren(caption(words));
}

function caption(words) {
  return html("p", { class: "caption" }, words);
}

/** A heading with room for a chart, which is the last child. */
function titled(words, ...more) {
  return html("div", {}, html("h3", {}, words, ...more), html("div", { class: "chart" }));
}
