/* Elements, and the two kinds of control that the page is made of. */
window.Walktalk = window.Walktalk || {};
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function build(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  const el = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

  /* One of a few: radio buttons that look like one bar. Arrow keys come with them. */
  function choice(legend, name, options, chosen, onchange) {
    const inputs = options.map(([value, text]) => {
      const id = `${name}-${value}`;
      const input = el("input", { type: "radio", name, id, value, checked: value === chosen });
      input.addEventListener("change", () => onchange(value));
      return [input, el("label", { for: id }, text)];
    });
    const box = el("fieldset", { class: "segmented" }, el("legend", {}, legend), el("div", {}, ...inputs.flat()));
    box.show = (value) => inputs.forEach(([input]) => { input.checked = input.value === value; });
    return box;
  }

  /* On or off. */
  function toggle(text, id, pressed, onchange) {
    const button = el("button", { type: "button", class: "button", id, "aria-pressed": String(pressed) }, text);
    button.addEventListener("click", () => onchange(button.getAttribute("aria-pressed") !== "true"));
    button.show = (on) => button.setAttribute("aria-pressed", String(on));
    return button;
  }

  const colourOf = (algorithm) =>
    document.documentElement.dataset.theme === "dark" ? algorithm.colour_dark : algorithm.colour;
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  window.Walktalk.dom = { el, svg, choice, toggle, colourOf, token };
})();
