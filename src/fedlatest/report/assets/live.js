// Keeps the page up to date while `fedlatest watch` serves it. What is selected, zoomed and opened stays so.

const INTERVAL = 1500; // milliseconds
const live = document.getElementById("live");

async function poll() {
  try {
    const answer = await fetch(`data.json?version=${encodeURIComponent(live.dataset.version)}`, { cache: "no-store" });
    if (answer.status === 200) update(await answer.json());
    else if (answer.status !== 204) throw new Error(answer.statusText);
    live.classList.remove("lost");
  } catch {
    live.classList.add("lost");
    showLive("no connection; is fedlatest watch still running?");
  }
  setTimeout(poll, INTERVAL);
}

function showLive(text) {
  if (live.textContent !== text) live.textContent = text;
}

function update({ version, state, note, parts, data }) {
  const shape = () => JSON.stringify([DATA.settings.map(({ label }) => label), DATA.runs.length > 1]);
  const before = shape(), focused = document.activeElement;
  DATA = data;
  live.dataset.version = version;
  document.getElementById("colours").textContent = parts.colours;
  for (const name of ["what", "findings", "summary", "configurations", "thinned", "diagnosis"]) {
    replaceContent(document.getElementById(name), parts[name]);
  }
  if (shape() !== before) drawTools();
  redrawSections();
  refocus(focused);
  const isLive = state === "live", now = isLive ? `live, updated ${new Date().toLocaleTimeString()}` : state;
  live.classList.toggle("finished", !isLive);
  showLive([now, note].filter(Boolean).join(" · "));
}

/** Replace the content of an element; parts of it that were open and how far it was scrolled stay as they were. */
function replaceContent(element, content) {
  const open = [...element.querySelectorAll("details")].map((details) => details.open);
  const { scrollLeft = 0 } = element.querySelector(".wide") || {};
  element.innerHTML = content; // escaped where the page is made, as in the page itself
  element.querySelectorAll("details").forEach((details, i) => { details.open = open[i] ?? details.open; });
  if (scrollLeft) element.querySelector(".wide").scrollLeft = scrollLeft;
}

/** Give the focus back to the control that replaced the one that had it. */
function refocus(element) {
  if (element.isConnected || element === document.body) return;
  const column = element.dataset.column ?? element.dataset.name;
  const found = element.id ? document.getElementById(element.id)
    : column && document.querySelector(`[data-column="${CSS.escape(column)}"] button`);
  if (found) found.focus({ preventScroll: true });
}

setTimeout(poll, INTERVAL);
