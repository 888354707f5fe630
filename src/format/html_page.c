#include "format/html_page.h"

#include <math.h>

/* Colours of lines are Okabe's and Ito's, which are distinguishable with colour blindness; in dark mode the
 * dark ones are lighter. */
static const char style[] =
    ":root{color-scheme:light dark;--ground:#fff;--ink:#1f2933;--grey:#5b6672;--pale:#e1e5ea;--card:#f5f7f9;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#aa4499;--c4:#997700;--c5:#56b4e9;--c6:#663333;--c7:#777777;"
    "--bad:#c1272d}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#14181c;--ink:#e4e8ec;--grey:#9aa5b1;--pale:#323a43;"
    "--card:#1c2228;--c0:#56b4e9;--c1:#f0883e;--c2:#2fc79a;--c3:#d98cc8;--c4:#e6c229;--c5:#8ecae6;"
    "--c6:#c9a08a;"
    "--c7:#b0b7be;--bad:#ff7b72}.map{filter:invert(.92) hue-rotate(180deg)}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:12px 16px 48px;max-width:1560px;"
    "background:var(--ground);"
    "color:var(--ink);font:15px/1.45 system-ui,Helvetica,Arial,sans-serif}\n"
    "h1{font-size:1.5em;margin:.4em 0 .2em;overflow-wrap:anywhere}h2{font-size:1.2em;margin:1.6em 0 .5em;"
    "border-bottom:1px solid var(--pale);padding-bottom:.2em}h3{font-size:1em;margin:1em 0 .4em}"
    "p{margin:.4em 0}\n"
    "a{color:var(--c0)}nav a{margin-right:1em;white-space:nowrap}.grey{color:var(--grey)}"
    ".bad{color:var(--bad)}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:8px;margin:12px 0}.tiles div{background:var(--card);"
    "border-radius:6px;"
    "padding:8px 14px}.tiles b{display:block;font-size:1.25em}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:10px}\n"
    "figure{margin:0;background:var(--card);border-radius:6px;padding:8px 10px;min-width:0}\n"
    "figcaption{font-size:.86em;min-height:2.9em;overflow-wrap:anywhere}output{display:block;"
    "color:var(--grey)}\n"
    "svg{display:block;width:100%;height:auto}.chart text,.scatter text{"
    "font:11px system-ui,Helvetica,Arial,sans-serif;"
    "fill:var(--grey)}.x{text-anchor:middle}.y{text-anchor:end}\n"
    ".grid{stroke:var(--pale);fill:none}.rule{stroke:var(--grey);stroke-dasharray:3 3}\n"
    ".scatter{max-width:440px}.dots{stroke:var(--c0);stroke-width:4;stroke-linecap:round;"
    "stroke-opacity:.45}.few{stroke-width:8}.many{stroke-width:1.3;stroke-opacity:.6}\n"
    ".line{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}"
    ".faint{opacity:.45}path.mark{fill:var(--bad)}\n"
    ".key{white-space:nowrap;margin-left:.7em}.key:before{content:'\\25ac\\a0'}.key.mark{color:var(--bad)}"
    ".key.mark:before{content:'\\25bc\\a0'}\n"
    ".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}"
    ".c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}\n"
    ".scroll{overflow:auto;width:fit-content;max-width:100%;max-height:32em;"
    "border:1px solid var(--pale);border-radius:6px}\n"
    "table{border-collapse:collapse;font-size:.9em}th,td{padding:2px 10px;text-align:left;vertical-align:top}"
    "th{white-space:nowrap}td{max-width:24em;overflow-wrap:break-word}"
    "td.n,th.n{text-align:right;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}"
    "tr:nth-child(even) td{background:var(--card)}thead th{position:sticky;top:0;background:var(--ground);"
    "border-bottom:1px solid var(--pale)}\n"
    "tr td.bar{min-width:60px;background:linear-gradient(var(--c0),var(--c0)) 0 60%/var(--v) 4px no-repeat}\n"
    ".tall{max-height:none}.wide{width:100%;max-width:1202px}.lines td{white-space:nowrap;max-width:none}\n"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,"
    "440px),1fr));gap:14px;"
    "align-items:start}.pair>*{min-width:0}.pair th{white-space:normal}.pair td:first-child{min-width:7em}\n"
    ".cells rect{stroke:var(--pale);stroke-width:.02}.cells text{text-anchor:middle}"
    ".right{fill:var(--c0)}.wrong{fill:var(--c1)}path.right{stroke:var(--c0)}path.wrong{stroke:var(--c1)}\n"
    ".cells[data-names]{outline:1px solid var(--pale)}\n"
    ".tiny path{vector-effect:non-scaling-stroke;stroke-width:1.5px;stroke-linecap:square}"
    ".cells{background:var(--ground)}.pictures{display:grid;gap:10px;"
    "grid-template-columns:repeat(auto-fill,minmax(132px,1fr))}.pictures figure{overflow-wrap:anywhere;"
    "font-size:.82em}.pictures img{display:block;height:112px;max-width:100%;object-fit:contain;margin:0 "
    "auto 6px;"
    "image-rendering:auto}.pictures .small{image-rendering:pixelated}"
    ".strips{grid-template-columns:repeat(auto-fill,minmax(min(100%,560px),1fr))}"
    ".strips img{height:auto;width:100%}\n"
    "pre{font-size:.82em;white-space:pre-wrap;overflow-wrap:anywhere;margin:0;padding:8px}"
    "summary{cursor:pointer;margin:.4em 0}.map{display:block;border:0;background:#fff;width:100%;min-width:"
    "900px}\n"
    "@media(max-width:640px){.tall th,.tall td{white-space:normal;overflow-wrap:anywhere;padding:2px 5px;"
    "min-width:6em;max-width:9em}.tall tr>:first-child{position:sticky;left:0;z-index:1;"
    "background:var(--ground)}}\n";

/* Shows the values of each chart's lines nearest to the pointer; and the classes in a large confusion
 * matrix. */
static const char script[] =
    "//<![CDATA[\n"
    "'use strict';\n"
    "function short(v) { return Number(v.toPrecision(4)).toLocaleString('en', {maximumSignificantDigits: "
    "4}); }\n"
    "function numbers(text) { return text.split(' ').map(Number); }\n"
    "function value(axis, pixel) { return axis[0] + (axis[2] - axis[0]) * (pixel - axis[1]) / (axis[3] - "
    "axis[1]); }\n"
    "function place(svg, event) {\n"
    "    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;\n"
    "    return [(event.clientX - box.left) / box.width * view.width,\n"
    "            (event.clientY - box.top) / box.height * view.height];\n"
    "}\n"
    "function nearest(line, x) {\n"
    "    let best = null;\n"
    "    for (const point of line.points)\n"
    "        if (best === null || Math.abs(point.x - x) < Math.abs(best.x - x)) best = point;\n"
    "    return best;\n"
    "}\n"
    "for (const svg of document.querySelectorAll('svg.chart')) {\n"
    "    const x = numbers(svg.dataset.x), y = numbers(svg.dataset.y), log = svg.dataset.log === '1';\n"
    "    const output = svg.parentNode.querySelector('output'), rule = svg.querySelector('.rule');\n"
    "    svg.addEventListener('pointermove', function (event) {\n"
    "        const at = place(svg, event)[0], words = [];\n"
    "        let where = at;\n"
    "        for (const line of svg.querySelectorAll('.line')) {\n"
    "            const point = nearest(line, at), v = point ? value(y, point.y) : 0;\n"
    "            if (!point) continue;\n"
    "            words.push(line.dataset.name + ' ' + short(log ? Math.pow(10, v) : v));\n"
    "            where = point.x;\n"
    "        }\n"
    "        rule.setAttribute('d', 'M' + where + ' ' + y[3] + 'V' + y[1]);\n"
    "        output.textContent = svg.dataset.name + ' ' + short(value(x, where)) + ': ' + words.join(', "
    "');\n"
    "    });\n"
    "    svg.addEventListener('pointerleave', function () { rule.setAttribute('d', ''); "
    "output.textContent = ''; });\n"
    "}\n"
    "const matrix = document.querySelector('svg.cells[data-names]');\n"
    "if (matrix) {\n"
    "    const names = JSON.parse(matrix.dataset.names), said = matrix.parentNode.querySelector('output');\n"
    "    matrix.addEventListener('pointermove', function (event) {\n"
    "        const at = place(matrix, event).map(Math.floor);\n"
    "        said.textContent = names[at[1]] + ' predicted as ' + names[at[0]];\n"
    "    });\n"
    "}\n"
    "//]]>\n";

void html_begin(struct text *out, const char *title)
{
    text_add(out, HTML_HEAD);
    text_html(out, title);
    text_add(out, "</title>\n<style>%s</style></head>\n<body>\n", style);
}

void html_end(struct text *out)
{
    text_add(out, "<script>%s</script></body></html>\n", script);
}

void html_section(struct text *out, const char *id, const char *title)
{
    text_add(out, "<h2 id=\"%s\">%s</h2>\n", id, title);
}

void html_cell(struct text *out, const char *value)
{
    text_add(out, "<td>");
    text_html(out, value);
    text_add(out, "</td>");
}

void html_number(struct text *out, double value, int decimals)
{
    if (isfinite(value)) text_add(out, "<td class=\"n\">%.*f</td>", decimals, value);
    else text_add(out, "<td class=\"n\"></td>");
}
