/* The table of results, sorted by whatever column is clicked. What has no number comes last. */
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

  window.Walktalk.sortable = sortable;
})();
