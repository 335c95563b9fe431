# SPDX-License-Identifier: Apache-2.0
"""Configure Sphinx."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from moorage import __version__
from moorage.scheduler.hosts import COLUMNS, Column

project = "Moorage"
copyright = "the authors of Moorage"
version = release = __version__

extensions = [
    # The options are read from the code that registers them.
    "oslo_config.sphinxext",
    "sphinx_copybutton",
]
# Copy only the commands of a console, without prompts and output.
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"Moorage {release}"
html_static_path = ["_static"]
html_css_files = ["moorage.css"]
exclude_patterns = ["_build"]
nitpicky = True


class HostColumns(SphinxDirective):
    """The table of the host columns, from their declarations."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 17 10 41 10"]
        lines.append("")
        head = ("Column", "Type", "Default", "Meaning", "Reported by")
        for row in (head, *map(_row, COLUMNS.values())):
            for number, cell in enumerate(row):
                lines.append(f"   {' ' if number else '*'} - {cell}")
        return self.parse_text_to_nodes("\n".join(lines))


def _row(column: Column) -> tuple[str, ...]:
    default = "required"
    if column.has_default:
        is_plain = isinstance(column.default, bool | int | float)
        default = f"{column.default}" if is_plain else "none"
    unit = f", {column.unit}" if column.unit else ""
    sources = (
        ("push", column.is_reported),
        ("kafka", column.is_reported),
        ("file", column.is_file_key),
    )
    by = ", ".join(f"``{name}``" for name, is_by in sources if is_by) or "neither"
    name = f"``{column.name}``"
    return name, f"{column.kind.name}{unit}", default, column.description, by


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("host-columns", HostColumns)
