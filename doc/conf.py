# SPDX-License-Identifier: Apache-2.0
"""Configure Sphinx."""

from moorage import __version__

project = "Moorage"
copyright = "the authors of Moorage"
version = release = __version__

# The options are read from the code that registers them.
extensions = ["oslo_config.sphinxext"]

html_theme = "furo"
html_title = f"Moorage {release}"
exclude_patterns = ["_build"]
nitpicky = True
