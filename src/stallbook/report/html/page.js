"use strict";
// What marks say of themselves, and charts as files. The page is complete without this.
(() => {
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  const say = (event) => {
    const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!mark) { hide(); return; }
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const room = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, window.innerWidth - room.width - 8);
    const y = event.clientY + 18 + room.height > window.innerHeight ? event.clientY - room.height - 12 : event.clientY + 18;
    tip.style.left = `${Math.max(8, x)}px`;
    tip.style.top = `${Math.max(8, y)}px`;
  };
  document.addEventListener("pointermove", say);
  document.addEventListener("pointerdown", say);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  const NS = "http" + "://www.w3.org/2000/svg";
  const make = (name, attributes, text) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };

  // The chart with its title, its legend and the colours that it has now, so that it can stand alone.
  const alone = (figure) => {
    const shown = [...figure.querySelectorAll("svg")].find((svg) => svg.getBoundingClientRect().width > 0);
    const style = getComputedStyle(document.documentElement);
    const plain = (text) => text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    const chart = shown.cloneNode(true);
    for (const mark of [chart, ...chart.querySelectorAll("*")]) {
      mark.removeAttribute("data-tip");
      for (const a of [...mark.attributes]) if (a.value.includes("var(")) mark.setAttribute(a.name, plain(a.value));
    }
    const [, , width, height] = shown.getAttribute("viewBox").split(" ").map(Number);
    const font = "Helvetica, Arial, sans-serif", ink = style.getPropertyValue("--ink").trim();
    const ruler = document.createElement("canvas").getContext("2d");
    const head = make("g", { "font-family": font, fill: ink });
    let y = 24;
    head.append(make("text", { x: 12, y, "font-size": 15, "font-weight": "bold" }, figure.dataset.title));
    ruler.font = `12px ${font}`;
    for (const list of figure.querySelectorAll("ul.chips")) {
      let x = 12;
      y += 22;
      for (const item of list.children) {
        const name = item.textContent, room = 18 + ruler.measureText(name).width + 16;
        if (x > 12 && x + room > width) { x = 12; y += 18; }
        const fill = getComputedStyle(item.querySelector("i")).backgroundColor;
        const dashed = fill === "rgba(0, 0, 0, 0)" ? style.getPropertyValue("--accent").trim() : fill;
        head.append(make("rect", { x, y: y - 10, width: 11, height: 11, fill: dashed }), make("text", { x: x + 16, y, "font-size": 12 }, name));
        x += room;
      }
    }
    y += 12;
    chart.setAttribute("x", 8);
    chart.setAttribute("y", y);
    chart.setAttribute("width", width);
    chart.setAttribute("height", height);
    const whole = make("svg", { xmlns: NS, width: width + 16, height: height + y + 8, viewBox: `0 0 ${width + 16} ${height + y + 8}`, "font-family": font });
    whole.append(make("rect", { width: "100%", height: "100%", fill: style.getPropertyValue("--ground").trim() }), head, chart);
    return { whole, width: width + 16, height: height + y + 8 };
  };

  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    if (!button) return;
    const figure = button.closest("figure"), kind = button.dataset.save;
    const { whole, width, height } = alone(figure);
    const blob = new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" });
    if (kind === "svg") { save(blob, `${figure.id}.svg`); return; }
    const picture = new Image(), source = URL.createObjectURL(blob);
    picture.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = width * 2;
      canvas.height = height * 2;
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      URL.revokeObjectURL(source);
      canvas.toBlob((made) => save(made, `${figure.id}.png`), "image/png");
    };
    picture.src = source;
  });
})();
