# SPDX-License-Identifier: Apache-2.0
"""Configure Sphinx."""

from moorage import __version__

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
