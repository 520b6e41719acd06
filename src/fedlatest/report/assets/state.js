// What is selected on the page. It is part of the address, after the section (#curves?metric=train_loss), so that a
// link or a reload shows the same view. Colours are those of the system unless the reader selects others.

const ALL = "*"; // instead of the label of a setting: all settings in one chart
const DEFAULTS = {
  setting: null, filter: "", sort: "", metric: "test_accuracy", scale: "linear", x: DATA.x, seeds: "mean",
  published: "shown", range: "", colour: "", key: "", summary: "late_accuracy", keyscale: "", theory: "hidden",
  theme: "",
};
const STATE = { ...DEFAULTS, hide: new Set(), without: new Set() }; // hidden runs (ids) and left out seeds

function readState() {
  const query = new URLSearchParams(location.hash.split("?").slice(1).join("?"));
  for (const name of Object.keys(DEFAULTS)) if (query.has(name)) STATE[name] = query.get(name);
  STATE.hide = new Set(query.getAll("hide"));
  STATE.without = new Set(query.getAll("without").map(Number));
}

function stateAsQuery() {
  const query = new URLSearchParams();
  for (const name of Object.keys(DEFAULTS)) {
    if (STATE[name] !== DEFAULTS[name] && STATE[name] !== null) query.set(name, STATE[name]);
  }
  for (const id of STATE.hide) query.append("hide", id);
  for (const seed of STATE.without) query.append("without", seed);
  const text = query.toString();
  return text && `?${text}`;
}

let waiting = null;
/** Change what is selected and, a little later, the address; browsers limit how often it may change. */
function select(changes = {}) {
  Object.assign(STATE, changes);
  clearTimeout(waiting);
  waiting = setTimeout(writeState, 150);
}

function writeState() {
  const [section] = location.hash.split("?"), hash = (section || "#") + stateAsQuery();
  if (hash !== (location.hash || "#")) history.replaceState(history.state, "", hash);
}

readState();
addEventListener("hashchange", () => {
  if (location.hash.includes("?") && location.hash.slice(location.hash.indexOf("?")) !== stateAsQuery()) {
    location.reload(); // an address that was typed or pasted
  } else writeState(); // a link to a section
});

// The theme

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (STATE.theme || (systemIsDark.matches ? "dark" : "light")) === "dark";

function applyTheme() {
  if (STATE.theme) document.documentElement.dataset.theme = STATE.theme;
  else delete document.documentElement.dataset.theme;
  dispatchEvent(new Event("theme"));
}

function themeButton() {
  const button = html("button", { type: "button", id: "theme" });
  const name = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    select({ theme: chosen === (systemIsDark.matches ? "dark" : "light") ? "" : chosen });
    applyTheme();
  });
  addEventListener("theme", name);
  name();
  return button;
}
systemIsDark.addEventListener("change", applyTheme);
applyTheme();
