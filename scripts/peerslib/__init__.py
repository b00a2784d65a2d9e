# SPDX-License-Identifier: Apache-2.0
"""Parts of scripts/bench_peers."""
