"""What code in the kernel image can import, by the names it imports them by. A test compares it with the image's lock."""

from __future__ import annotations

DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "altair": ("altair",), "asttokens": ("asttokens",), "attrs": ("attr", "attrs"), "cloudpickle": ("cloudpickle",), "comm": ("comm",),
    "contourpy": ("contourpy",), "cycler": ("cycler",), "debugpy": ("debugpy",), "duckdb": ("duckdb",), "et-xmlfile": ("et_xmlfile",),
    "executing": ("executing",), "fonttools": ("fontTools",), "ipykernel": ("ipykernel",), "ipython": ("IPython",),
    "ipython-pygments-lexers": ("ipython_pygments_lexers",), "ipywidgets": ("ipywidgets",), "jedi": ("jedi",), "jinja2": ("jinja2",),
    "joblib": ("joblib",), "jsonschema": ("jsonschema",), "jsonschema-specifications": ("jsonschema_specifications",),
    "jupyter-client": ("jupyter_client",), "jupyter-core": ("jupyter_core",), "jupyterlab-widgets": ("jupyterlab_widgets",),
    "kiwisolver": ("kiwisolver",), "markupsafe": ("markupsafe",), "matplotlib": ("matplotlib", "mpl_toolkits", "pylab"),
    "matplotlib-inline": ("matplotlib_inline",), "narwhals": ("narwhals",), "nest-asyncio2": ("nest_asyncio2",), "numpy": ("numpy",),
    "openpyxl": ("openpyxl",), "packaging": ("packaging",), "pandas": ("pandas",), "parso": ("parso",), "pexpect": ("pexpect",),
    "pillow": ("PIL",), "platformdirs": ("platformdirs",), "plotly": ("plotly",), "polars": ("polars",),
    "polars-runtime-32": ("_polars_runtime_32",), "prompt-toolkit": ("prompt_toolkit",), "psutil": ("psutil",), "ptyprocess": ("ptyprocess",),
    "pure-eval": ("pure_eval",), "pyarrow": ("pyarrow",), "pygments": ("pygments",), "pyparsing": ("pyparsing",),
    "python-dateutil": ("dateutil",), "pyzmq": ("zmq",), "referencing": ("referencing",), "rpds-py": ("rpds",),
    "scikit-learn": ("sklearn",), "scipy": ("scipy",), "seaborn": ("seaborn",), "stack-data": ("stack_data",),
    "threadpoolctl": ("threadpoolctl",), "tornado": ("tornado",), "tqdm": ("tqdm",), "traitlets": ("traitlets",),
    "typing-extensions": ("typing_extensions",), "tzdata": ("tzdata",), "wcwidth": ("wcwidth",), "widgetsnbextension": ("widgetsnbextension",),
}  # fmt: skip
"""Distribution, as the lock names it -> its modules."""
OWN = ("sandglass",)
MODULES = frozenset(name for names in DISTRIBUTIONS.values() for name in names).union(OWN)
