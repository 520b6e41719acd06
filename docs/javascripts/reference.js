// Folds the entries of the API pages: what follows the first paragraph and its formulas is shown after a click, or if
// a link leads to the entry.
for (const entry of document.querySelectorAll(".doc-function, .doc-class")) {
  const contents = entry.querySelector(":scope > .doc-contents")
  const parts = contents ? [...contents.children] : []
  let summary = parts.findIndex(part => part.tagName === "P") + 1
  while (parts[summary]?.querySelector("table.formula") || parts[summary]?.matches("table.formula")) summary++
  const folded = [...entry.querySelectorAll(":scope > .doc-signature"), ...parts.slice(summary)]
  if (folded.length === 0) continue
  const details = document.createElement("details")
  details.className = "reference"
  details.innerHTML = "<summary>arguments and details</summary>"
  details.append(...folded)
  contents.append(details)
}

function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))
  if (!target) return
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true
  const own = target.closest(".doc-object")?.querySelector(":scope > .doc-contents > details")
  if (own) own.open = true
  target.scrollIntoView()
}
addEventListener("hashchange", unfold)
unfold()
