# SPDX-License-Identifier: Apache-2.0
"""The scheduler's real driver on virtual time: which settings place a trace best.

The driver, the filters, the weighers and the candidates in memory are those of
moorage-scheduler. What is simulated is the cloud around them: instances arrive and
leave as a trace says, and a claim is granted if the providers have room for it.
"""
