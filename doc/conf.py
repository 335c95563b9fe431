# SPDX-License-Identifier: Apache-2.0
"""Configure Sphinx."""

from collections.abc import Iterator

from docutils import nodes
from oslo_config import cfg
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from moorage import __version__
from moorage.scheduler import logs
from moorage.scheduler.conf import ProgramOptions, load, registered_opts
from moorage.scheduler.hosts import COLUMNS, Column

project = "Moorage"
copyright = "the authors of Moorage"
version = release = __version__

extensions = [
    # The options are read from the code that registers them.
    "oslo_config.sphinxext",
    # The options of `moorage`, from its commands.
    "sphinx_click",
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
# Without dashes: help texts name options, such as --failed.
smartquotes_action = "qe"

# Built into etc/man, from where the wheel installs them: `make man`.
man_pages = [
    (f"reference/{command}", command, what, [], section)
    for command, section, what in (
        ("moorage", 1, "explain and predict the decisions of Moorage"),
        ("moorage-agent", 8, "report this machine to the schedulers of Moorage"),
        ("moorage-api", 8, "serve explanations of Moorage's decisions over HTTP"),
        ("moorage-relay", 8, "write the hosts of a cloud to Kafka for Moorage"),
        ("moorage-scheduler", 8, "select hosts for the conductors of nova"),
        ("moorage-status", 8, "check an installation of Moorage"),
    )
]
man_make_section_directory = True


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
    by = ", ".join(f"``{name}``" for name, is_by in sources if is_by) or "none of these"
    name = f"``{column.name}``"
    return name, f"{column.kind.name}{unit}", default, column.description, by


#: Options that oslo.config registers, and that need a plugin or a file that is missing.
_UNUSABLE = ("config-source", "shell_completion")


class DaemonOptions(SphinxDirective):
    """The options of a daemon's command line, from their registrations."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        conf = ProgramOptions()
        logs.register_opts(conf)
        load(conf=conf, config_files=[])
        opts = [opt for _, opt, is_cli in registered_opts(conf) if is_cli]
        lines = []
        for opt in sorted(opts, key=lambda opt: opt.name):
            if opt.name not in _UNUSABLE:
                meaning = opt.help % {"prog": self.arguments[0]}
                lines += [", ".join(_flags(opt)), f"   {' '.join(meaning.split())}"]
        lines += ["``--help``, ``--version``", "   Print it, and exit."]
        return self.parse_text_to_nodes("\n".join(lines))


def _flags(opt: cfg.Opt) -> Iterator[str]:
    if isinstance(opt, cfg.BoolOpt):
        yield f"``--{opt.name}``"
        yield f"``--no{opt.name}``"
    else:
        yield f"``--{opt.name} {opt.metavar or opt.dest.upper()}``"


def _unlink(app: Sphinx, doctree: nodes.document, _name: str) -> None:
    """Keep only the text of links to other pages: a man page cannot follow them."""
    if app.builder.name == "man":
        for link in list(doctree.findall(nodes.reference)):
            if not link.get("refuri", "").startswith("http"):
                link.parent.replace(link, link.children)


def setup(app: Sphinx) -> None:
    """Register the directives, and what is different in man pages."""
    app.connect("doctree-resolved", _unlink)
    app.add_directive("daemon-options", DaemonOptions)
    app.add_directive("host-columns", HostColumns)
