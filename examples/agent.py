"""An agent's loop: variables live from step to step, each failure says what to do next, and a loss is noticed before it does harm.

    SANDGLASS_URL=http://127.0.0.1:8888 SANDGLASS_TOKEN=$(sandglass token --user alice) python examples/agent.py
"""

from __future__ import annotations

import asyncio

from sandglass_client import GenerationMismatch, Notice, Sandglass

STEPS = [
    "import statistics\nnumbers = [3, 1, 4, 1, 5, 9, 2, 6]",
    "mean = statistics.mean(nubmers)",  # an agent's mistake
    "mean = statistics.mean(numbers)\nmean",
]


def told(notice: Notice) -> None:
    print(f"  notice: {notice.text}")


async def main() -> None:
    async with Sandglass(on_notice=told) as s:
        for step in STEPS:
            r = await s.run(step, timeout_s=30, expect_generation=s.generation)
            if r.ok:
                print(f"ok {r.text!r}")
            else:
                print(f"{r.exit_reason}: {r.error.value if r.error else r.reason_text} -> {r.next_action}")

        # Variables go with a restart. Code that relies on them is refused, not run on a state that is gone.
        meant = s.generation
        await s.restart()
        try:
            await s.run("mean * 2", expect_generation=meant)
        except GenerationMismatch as error:
            print(f"refused: lost {', '.join(error.lost_variables)}")
            rebuilt = await s.rebuild(timeout_s=30)
            print(f"rebuild {rebuilt.state}: back {', '.join(rebuilt.back)}")
        r = await s.run("mean * 2", expect_generation=s.generation)
        print(f"ok {r.check().text!r}")


if __name__ == "__main__":
    asyncio.run(main())
