# SPDX-License-Identifier: Apache-2.0
"""The commands `moorage locality`: hosts are put into places as a file says.

FILE.csv ─▶ host_file ─▶ changes ─┬─▶ compute_places: host aggregates of nova
                                  └─▶ applying: Placement's aggregates
"""
