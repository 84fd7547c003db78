# For pyright alone, which reads the whole table of prices to learn the type of its name: half a minute a run.
from genai_prices.types import Provider

providers: list[Provider]
