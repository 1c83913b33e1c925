"use strict";
// Tables sort by a click on a heading. Cells carry the number they show as data-order; empty ones stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const rows = [...body.rows].map((row) => ({ row, cell: row.cells[column] }));
      const numbers = rows.some(({ cell }) => cell.dataset.order !== undefined);
      const key = ({ cell }) => (numbers ? cell.dataset.order && Number(cell.dataset.order) : cell.textContent.trim());
      const known = rows.filter((row) => key(row) !== undefined && key(row) !== "");
      const unknown = rows.filter((row) => !known.includes(row));
      known.sort((a, b) => sign * (numbers ? key(a) - key(b) : key(a).localeCompare(key(b), "en", { numeric: true })));
      body.append(...[...known, ...unknown].map(({ row }) => row));
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    });
  });
}
// What is folded away is printed too.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((part) => { part.open = true; });
});
addEventListener("afterprint", () => folded.forEach((part) => { part.open = false; }));
