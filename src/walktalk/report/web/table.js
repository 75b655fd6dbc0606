/* Tables, sorted by whatever column is clicked; what has no number comes last. Those of many runs can be filtered. */
window.Walktalk = window.Walktalk || {};
(() => {
  /* `before`: the table in whose place it stands; it is sorted as that one was. */
  function sortable(table, before) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        order(table, column, up);
      });
    });
    if (before) likewise(table, heads, before);
  }

  function likewise(table, heads, before) {
    [...before.querySelectorAll("thead th")].forEach((head, column) => {
      const sorted = head.getAttribute("aria-sort");
      if (sorted === "none" || !heads[column]) return;
      heads[column].setAttribute("aria-sort", sorted);
      order(table, column, sorted === "ascending");
    });
  }

  function order(table, column, up) {
    const body = table.tBodies[0];
    const key = (row) => row.cells[column].dataset.sort;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const numbers = [Number(x), Number(y)];
      const less = numbers.some(Number.isNaN) ? x.localeCompare(y, "en", { numeric: true }) : numbers[0] - numbers[1];
      return up ? less : -less;
    });
    body.append(...rows);
  }

  /* A box above each column: rows stay that have its text in them, or meet its comparison, for all columns. */
  function filterable(table) {
    const heads = [...table.tHead.rows[0].cells];
    const said = document.createElement("p");
    said.className = "note";
    said.setAttribute("role", "status");
    const boxes = heads.map((head) => {
      const box = document.createElement("input");
      box.type = "search";
      box.placeholder = "filter";
      box.setAttribute("aria-label", `Only rows by ${head.textContent}`);
      box.addEventListener("input", apply);
      return box;
    });
    const line = table.tHead.insertRow();
    line.className = "filters";
    for (const box of boxes) line.insertCell().append(box);
    table.parentElement.after(said);

    function apply() {
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) row.hidden = !boxes.every((box, column) => meets(row.cells[column], box.value.trim()));
      const left = rows.filter((row) => !row.hidden).length;
      said.textContent = left < rows.length ? `${left} of ${rows.length} rows` : "";
    }
  }

  function meets(cell, wanted) {
    const told = /^(<=|>=|!=|<|>|=)\s*(.+)$/.exec(wanted);
    const key = cell.dataset.sort, text = cell.textContent.toLowerCase();
    if (!told) return text.includes(wanted.toLowerCase());
    const [, how, value] = told, [x, y] = [key === "" ? NaN : Number(key), Number(value)];
    const same = Number.isNaN(x) || Number.isNaN(y) ? key.toLowerCase() === value.toLowerCase() : x === y;
    return { "<": x < y, ">": x > y, "<=": x <= y, ">=": x >= y, "=": same, "!=": !same }[how];
  }

  Object.assign(window.Walktalk, { sortable, filterable });
})();
