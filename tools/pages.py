"""Turn executed lessons into HTML pages that need no network, and make the index page.
Follows nbconvert's "lab" template; formulas become MathML, pictures are embedded, scripts from elsewhere go.
Leaves out live widgets: a page has no kernel, so it shows the static figure that stands beside each widget.
"""

import html
import os
import re
from collections.abc import Sequence
from pathlib import Path

import latex2mathml.converter
import nbformat
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_NOTE = "[a widget: it lives when the lesson is run; its first state is drawn beside it]"

TEMPLATE = """\
{%- extends 'lab/index.html.j2' -%}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}<style>
main { max-width: 60rem; margin: 0 auto; }
math[display=block] { margin: .8em 0; }
a.all-lessons { color: #0645ad; font: 1rem system-ui, sans-serif; }
</style>{% endblock %}
{% block body_header %}{{ super() }}
<p style="margin: 1em"><a class="all-lessons" href="index.html">all lessons</a></p>{% endblock %}
"""

STYLE = """\
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem; border-bottom: 1px solid #ddd; }
td.number { text-align: right; white-space: nowrap; }
.passed { color: #00694e; } .failed { color: #b3261e; font-weight: 600; }
footer { margin-top: 2rem; color: #666; font-size: .85rem; }
"""


def without_widgets(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """`notebook`, changed in place: widget views become a line of text, and their stored state goes."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if WIDGET_VIEW in output.get("data", {}):
                del output.data[WIDGET_VIEW]
                output.data["text/plain"] = WIDGET_NOTE
    return notebook


def mathml(latex: str, display: str) -> str:
    """A formula as MathML; `display` is "inline" or "block". What cannot be converted is shown as code."""
    try:
        return latex2mathml.converter.convert(latex.strip(), display=display)
    except Exception:  # any of the converter's own errors: the formula's source is then the best we have
        return f"<code>{html.escape(latex)}</code>"


class OfflineRenderer(IPythonRenderer):
    """Markdown to HTML: formulas as MathML, links between lessons as links between pages."""

    def __init__(self, *args, notebooks: Path, out: Path, **kwargs):
        super().__init__(*args, **kwargs)
        self.notebooks, self.out = notebooks, out

    def inline_math(self, body):
        return mathml(body, "inline")

    def block_math(self, body):
        return mathml(body, "block")

    def latex_environment(self, name, body):
        return mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", "block")

    def _html_embed_images(self, html):
        """Without a picture the tags stay as written: the parser would close a <details> before what it folds."""
        return super()._html_embed_images(html) if "<img" in html else html

    def link(self, text, url, title=None):
        if re.fullmatch(r"\d\d_\w+\.ipynb(#.*)?", url):
            url = url.replace(".ipynb", ".html")
        elif not re.match(r"[a-z]+:|#|/", url):
            url = os.path.relpath(self.notebooks / url, self.out)
        return super().link(text, url, title)


class OfflineExporter(HTMLExporter):
    """nbconvert's HTML with OfflineRenderer, and no script or style that lies elsewhere."""

    def __init__(self, notebooks: Path, out: Path):
        super().__init__(raw_template=TEMPLATE, embed_images=True)
        self.notebooks, self.out = notebooks, out

    def markdown2html(self, context, source):
        renderer = OfflineRenderer(
            escape=False,
            attachments=context.get("cell", {}).get("attachments", {}),
            embed_images=True,
            path=str(self.notebooks),
            exclude_anchor_links=True,
            notebooks=self.notebooks,
            out=self.out,
        )
        return MarkdownWithMath(renderer=renderer).render(source)

    markdown2html.jinja_pass_arg = HTMLExporter.markdown2html.jinja_pass_arg


def write_whole(path: Path, text: str) -> None:
    """Write a file so that an interruption leaves the old one or the new one, never a part."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text)
    part.replace(path)


def write_lesson(notebook: nbformat.NotebookNode, title: str, notebooks: Path, page: Path) -> None:
    """Write `notebook` as the HTML file `page`."""
    notebook = without_widgets(nbformat.from_dict(notebook))
    notebook.metadata["title"] = title
    exporter = OfflineExporter(notebooks.resolve(), page.parent.resolve())
    body, _ = exporter.from_notebook_node(notebook, {"metadata": {"path": str(notebooks)}})
    write_whole(page, body)


def write_index(rows: Sequence, path: Path, note: str) -> None:
    """Write the index page from course.Lesson rows; `note` is its footer."""
    lines = []
    for row in rows:
        title = html.escape(row.title)
        if row.page:
            title = f'<a href="{html.escape(row.page)}">{title}</a>'
        said = html.escape(row.problem or row.headline)
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        lines.append(
            f'<tr><td>{title}</td><td class="number">{row.minutes or ""}</td>'
            f'<td class="{row.status}">{row.status}</td><td class="number">{seconds}</td><td>{said}</td></tr>'
        )
    write_whole(
        path,
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<title>Speculative decoding: the course</title>\n"
        f"<style>\n{STYLE}</style></head>\n<body><h1>Speculative decoding: the course</h1>\n<table>\n"
        "<tr><th>lesson</th><th>minutes to read</th><th>result</th><th>seconds to run</th>"
        "<th>headline</th></tr>\n"
        + "\n".join(lines)
        + f"\n</table>\n<footer>{html.escape(note)}</footer></body></html>\n",
    )
