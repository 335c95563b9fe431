# SPDX-License-Identifier: Apache-2.0
"""Moorage, a scheduler for nova-style clouds.

The checkout's root is this package: ``objects/`` is ``moorage.objects`` and so on
(``package_dir`` in setup.cfg). Nothing is imported here.
"""

__version__ = "0.1.0"
