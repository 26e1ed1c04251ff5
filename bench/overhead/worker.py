"""A process that plays jobs: reads one as a line of JSON, plays it, writes the result as a line.

python -m bench.overhead.worker     # ends when its standard input does
"""

from __future__ import annotations

import json
import sys

import uvloop

from bench.overhead.load import Job, play


def main() -> None:
    for line in sys.stdin:
        try:
            told = uvloop.run(play(Job(**json.loads(line)))).as_json()
        except OSError as error:
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
