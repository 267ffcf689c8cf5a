// Tables that can be searched and sorted: those with the class "long" get a search field, and headings that sort.
"use strict";
for (const table of document.querySelectorAll("table.long")) {
  const body = table.tBodies[0], rows = [...body.rows];
  const field = document.createElement("input"), count = document.createElement("span"), bar = document.createElement("p");
  field.type = "search"; field.placeholder = "Search"; field.setAttribute("aria-label", "Search this table");
  count.setAttribute("role", "status"); bar.className = "search"; bar.append(field, " ", count);
  table.parentNode.before(bar);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
  // A cell begins with its number; thousands have commas.
  const number = cell => parseFloat(cell.textContent.replace(/,/g, "").replace("−", "-"));
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") !== "descending" && heading.classList.contains("number")
        || heading.getAttribute("aria-sort") === "ascending";
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const isNumber = heading.classList.contains("number");
      const compare = (one, other) => isNumber
        ? (number(one.cells[place]) || 0) - (number(other.cells[place]) || 0)
        : one.cells[place].textContent.localeCompare(other.cells[place].textContent, undefined, {numeric: true});
      body.append(...[...rows].sort((one, other) => down ? compare(other, one) : compare(one, other)));
    });
  });
}
