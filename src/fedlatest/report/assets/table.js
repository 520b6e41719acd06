// The section Runs: the table can be sorted by every column, is filtered, and can be downloaded.

function table() {
  return () => {
    const box = document.getElementById("summary"), columns = [...box.querySelectorAll("thead th")];
    for (const column of columns) {
      if (column.querySelector("button")) continue;
      const press = () => {
        const isText = name === "run";
        const order = isText ? [name, `-${name}`, ""] : [`-${name}`, name, ""]; // numbers: largest first
        select({ sort: order[(order.indexOf(STATE.sort) + 1) % order.length] });
        sortAndFilter(box);
      };
      const { column: name } = column.dataset;
      column.replaceChildren(html("button", { type: "button", "data-name": name, onclick: press }, column.textContent));
    }
    const save = () => saveFile("runs.csv", "text/csv", tableAsCsv(box));
    within("runs", "controls").replaceChildren(html("span", { class: "caption count" }),
      html("button", { type: "button", "data-download": "CSV", onclick: save }, "Download CSV"));
    sortAndFilter(box);
  };
}

/** Order the rows by the selected column, or as they came, and hide those that do not pass the filter. */
function sortAndFilter(box) {
  const name = STATE.sort.replace(/^-/, ""), direction = STATE.sort.startsWith("-") ? -1 : 1;
  const columns = [...box.querySelectorAll("thead th")];
  const at = columns.findIndex((column) => column.dataset.column === name);
  columns.forEach((column, i) => {
    if (i === at) column.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else column.removeAttribute("aria-sort");
  });
  const body = box.querySelector("tbody"), rows = [...body.rows];
  rows.forEach((row, i) => { row.dataset.place ??= i; });
  const valueOf = (row) => {
    const { value } = row.cells[at].dataset;
    return value === "" || Number.isNaN(Number(value)) ? value : Number(value);
  };
  const compare = (a, b) => {
    const values = at < 0 ? [0, 0] : [valueOf(a), valueOf(b)];
    const missing = (values[0] === "") - (values[1] === ""); // last, in either direction
    return missing || direction * byValue(...values) || a.dataset.place - b.dataset.place;
  };
  body.append(...rows.sort(compare));
  const styles = new Map(runsInSetting().map((run) => [run.id, run])); // when settings are overlaid, lines differ
  for (const row of rows) {
    const run = DATA.runs[row.dataset.run], { colour, dash } = styles.get(run.id) || {};
    row.hidden = !passesFilter(run);
    const sample = swatch(colour || `var(--run-${row.dataset.run})`, dash ?? run.dash);
    row.querySelector(".swatch").replaceWith(sample);
  }
  const shown = rows.filter((row) => !row.hidden).length;
  const total = `${rows.length} run${rows.length === 1 ? "" : "s"}`;
  within("runs", "count").textContent = shown === rows.length ? total : `${shown} of ${total}`;
}

/** Return the visible rows in their order, with mean and standard deviation of every number. */
function tableAsCsv(box) {
  const names = Object.keys(DATA.summaries);
  const deviation = (values, mean) => {
    const known = values.filter(isNumber);
    return known.length > 1 ? Math.sqrt(known.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (known.length - 1)) : null;
  };
  const rows = [...box.querySelectorAll("tbody tr")].filter((row) => !row.hidden).map((row) => {
    const run = DATA.runs[row.dataset.run];
    const numbers = names.flatMap((name) => {
      const { mean } = overValues(run.summary[name]);
      return [mean, deviation(run.summary[name], mean)];
    });
    return [run.full, run.id, run.status, run.seeds.length, ...DATA.keys.map((key) => run.values[key]), ...numbers];
  });
  const head = ["run", "folder", "status", "seeds", ...DATA.keys, ...names.flatMap((name) => [name, `${name}_sd`])];
  return asCsv([head, ...rows]);
}
