# SPDX-License-Identifier: Apache-2.0
"""nova-conductors and nova-computes, forked by a process that has imported nova.

Each is what nova's own program of that name is; imports take most of the time of its
start. Run by cloud.py with the Python of the peer environment; it imports nova and
nothing of ours. The argument is a list in JSON: of each service, the name of the
program, the path of its log and its arguments. All of them have the process group of
this process, and are killed with it.
"""

import json
import os
import random
import sys

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from nova.cmd import compute, conductor  # patches before anything else of nova

# ruff: noqa: F401 - what follows is imported by the services as they start
from nova.compute import manager as compute_manager
from nova.conductor import manager as conductor_manager
from nova.scheduler.client import report
from nova.virt import fake
from oslo_messaging._drivers import impl_rabbit

_PROGRAMS = {"nova-compute": compute.main, "nova-conductor": conductor.main}


def main():
    compute.objects.register_all()
    for program, log, arguments in json.loads(sys.argv[1]):
        if not os.fork():
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, sys.stdout.fileno())
            os.dup2(output, sys.stderr.fileno())
            random.seed()
            sys.argv = [program, *arguments]
            sys.exit(_PROGRAMS[program]())
    while True:
        pid, status = os.wait()
        print(f"{pid} has ended with {status}", flush=True)


if __name__ == "__main__":
    main()
