"use strict";
// Sort a table by a column: numbers by their value, text by the alphabet; a second click reverses.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  for (const head of table.tHead.rows[0].cells) {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending", at = head.cellIndex;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[at].dataset.v;
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === undefined && y === undefined)
          return a.cells[at].textContent.trim().localeCompare(b.cells[at].textContent.trim()) * (up ? 1 : -1);
        if (x === undefined || y === undefined) return x === undefined ? 1 : -1;
        return (x - y) * (up ? 1 : -1);
      });
      body.append(...rows);
    });
  }
}
// Filter tables by words: a row stays if it contains all of them.
for (const field of document.querySelectorAll("input.filter")) {
  const body = document.getElementById(field.dataset.table).tBodies[0];
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
}
// A link from a cell shows the rows that the cell follows from, and no others.
const list = document.getElementById("rows"), all = document.getElementById("all");
function show() {
  const wanted = decodeURIComponent(location.hash).match(/^#rows=([0-9a-f,]+)$/);
  const ids = wanted ? new Set(wanted[1].split(",")) : null;
  let count = 0;
  for (const row of list.tBodies[0].rows) {
    row.hidden = ids !== null && !ids.has(row.dataset.id);
    count += !row.hidden;
  }
  document.getElementById("count").textContent = ids ? count + " rows behind the cell" : count + " rows";
  all.hidden = ids === null;
  if (ids) document.getElementById("h-rows").scrollIntoView();
}
addEventListener("hashchange", show);
show();
// One heat map at a time.
const choice = document.getElementById("scheme");
if (choice) {
  const pick = () => {
    for (const map of document.querySelectorAll(".heat")) map.hidden = map.dataset.scheme !== choice.value;
  };
  choice.addEventListener("change", pick);
  pick();
}
