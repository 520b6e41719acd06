// The section Labels: accuracy per label of one run.

const LABEL_DASHES = ["", "8 3", "2 3", "10 3 2 3", "5 3"];

function labels() {
  const show = (run) => {
    const { rounds, names, accuracy } = run.labels, box = html("div", { class: "chart" }), hidden = new Set();
    within("labels", "content").replaceChildren(box);
    const chart = new LineChart(box, {
      label: `Accuracy per label of ${run.label}`, x: "round", y: "test accuracy", formatY: fourDigits, highlight: true,
      file: "accuracy-per-label",
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
