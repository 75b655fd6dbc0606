/* The table of results, sorted by whatever column is clicked. What has no number comes last. */
window.Walktalk = window.Walktalk || {};
(() => {
  function sortable(table) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        order(table, column, up);
      });
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
