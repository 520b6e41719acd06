// The section Runs: the table can be sorted by every column, is filtered, and can be downloaded. The headline numbers
// are those of its visible rows.

const THEORY = ["smallest_e", "bound"]; // columns that are hidden until the reader selects them

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
      html("button", { type: "button", "data-download": "CSV", onclick: save }, "Download CSV"), ...theorySwitch(box));
    sortAndFilter(box);
  };
}

const cellOf = (row, name) => {
  const columns = [...row.closest("table").tHead.rows[0].cells];
  return row.cells[columns.findIndex((column) => column.dataset.column === name)];
};

/** Hide or show the columns of THEORY; return the switch for it, or nothing if they hold no number. */
function theorySwitch(box) {
  const rows = [...box.querySelector("table").rows], body = rows.slice(1);
  const isKnown = THEORY.some((name) => body.some((row) => cellOf(row, name).dataset.value !== ""));
  const apply = () => {
    for (const row of rows) for (const name of THEORY) cellOf(row, name).hidden = !isKnown || STATE.theory !== "shown";
  };
  apply();
  if (!isKnown) return [];
  const input = html("input", { type: "checkbox", id: "theory", onchange: () => {
    select({ theory: input.checked ? "shown" : "hidden" });
    apply();
    if (input.checked) box.querySelector(".wide").scrollLeft = 1e6; // they are the last columns
  } });
  input.checked = STATE.theory === "shown";
  const title = "E of Assumption 4 and the bound I of Lemma 1; their meaning is below the table";
  return [html("label", { class: "group", title }, input, "theory columns")];
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
  showHeadline();
}

/** Show the most important numbers of the runs that pass the filter and are not hidden in the legend of the curves. */
function showHeadline() {
  const all = [...document.querySelectorAll("#summary tbody tr")], runOf = (row) => DATA.runs[row.dataset.run];
  const rows = all.filter((row) => !row.hidden && !STATE.hide.has(runOf(row).id));
  const federated = rows.filter((row) => !runOf(row).pooled);
  const scope = federated.length < rows.length ? "federated" : rows.length < all.length ? "selected" : "all";
  const card = (title, value, ...details) => html("div", { class: "card" },
    html("span", {}, title), html("b", {}, value), ...details.filter(Boolean).map((text) => html("small", {}, text)));
  const cardOf = (name, title, direction, unit = "") => {
    const valueOf = (row) => direction * Number(cellOf(row, name).dataset.value);
    const known = federated.filter((row) => cellOf(row, name).dataset.value !== "");
    if (!known.length) return [];
    const best = known.reduce((a, b) => (valueOf(b) > valueOf(a) ? b : a)), cell = cellOf(best, name);
    return [card(title(known.length > 1), cell.textContent + unit, runOf(best).full, cell.title)];
  };
  const count = (status, noun) => {
    const found = rows.filter((row) => runOf(row).status === status).length;
    return found ? `${found} ${noun}` : "";
  };
  const progress = [count("running", "running"), count("diverged", "diverged")].filter(Boolean).join(", ");
  document.getElementById("headline").replaceChildren(
    ...cardOf("late_accuracy", (several) => (several ? `best late accuracy (${scope} runs)` : "late accuracy"), 1),
    ...cardOf("swing", (several) => (several ? `smallest swing (${scope} runs)` : "swing"), -1),
    ...cardOf("staleness", () => "largest staleness", 1, " rounds"),
    card("runs", rows.length < all.length ? `${rows.length} of ${all.length}` : all.length, progress || "all finished"));
}

/** Return the visible rows in their order, with every mean and half of its 95% confidence interval. */
function tableAsCsv(box) {
  const names = Object.keys(DATA.summaries), number = (text) => (text ? Number(text) : null);
  const rows = [...box.querySelectorAll("tbody tr")].filter((row) => !row.hidden).map((row) => {
    const run = DATA.runs[row.dataset.run];
    const numbers = names.flatMap((name) => {
      const { value, interval } = cellOf(row, name).dataset;
      return [number(value), number(interval)];
    });
    return [run.full, run.id, run.status, run.seeds.length, ...DATA.keys.map((key) => run.values[key]), ...numbers];
  });
  const columns = names.flatMap((name) => [name, `${name}_ci95_half_width`]);
  return asCsv([["run", "folder", "status", "seeds", ...DATA.keys, ...columns], ...rows]);
}
