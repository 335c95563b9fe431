# SPDX-License-Identifier: Apache-2.0
"""Sources of host state: nova's databases, reports over RPC or Kafka, or a file."""
