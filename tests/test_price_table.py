"""Prices of the table are found as they are written there, and never by a guess."""

import subprocess
import sys
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from routeguard.price_sources import OVERHEAD_TOKENS_UNKNOWN, UnknownModel, UnpricedModel, find_model
from routeguard.prices import NS_PER_SECOND, ModelPrice
from routeguard.pricing import Tariff
from routeguard.usage import Usage
from tests.tariffs import NOW, rates_of, usd

DECEMBER = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * NS_PER_SECOND


def dearest_input(model: ModelPrice, *, input_tokens: int = 0, tier: str | None = None) -> Fraction:
    rates = rates_of(model, input_tokens=input_tokens, tier=tier)
    return usd(rates.dearest_input, rates.per)


def test_a_bare_name_means_the_models_own_vendor() -> None:
    model = find_model("gpt-5-mini")

    rates = rates_of(model)
    assert (model.name, model.family, model.overhead_tokens) == ("gpt-5-mini", "openai", 256)
    assert usd(rates.input, rates.per) == Fraction("0.25")
    assert usd(rates.cached_input, rates.per) == Fraction("0.025")
    assert usd(rates.output, rates.per) == 2
    assert Fraction(rates.web_search, rates.per) == 10_000_000


def test_the_dearest_rates_of_the_table_are_found() -> None:
    """Figures measured on the table: $4 becomes $10 in the long tier's cache writes, $20 in the fast tier."""
    sol, haiku = find_model("gpt-5.6-sol"), find_model("claude-haiku-5-5")

    assert dearest_input(sol) == 5
    assert dearest_input(sol, input_tokens=272_001) == 10
    assert dearest_input(sol, input_tokens=272_001, tier="fast") == 20
    assert dearest_input(haiku, input_tokens=100_000) == Fraction("0.2")
    assert dearest_input(haiku, input_tokens=100_001) == 1


def test_a_dated_price_starts_at_midnight_utc() -> None:
    argon = find_model("gemini-4-argon")

    before, after = rates_of(argon, wall_ns=DECEMBER - 1), rates_of(argon, wall_ns=DECEMBER)

    assert [usd(rates.input, rates.per) for rates in (before, after)] == [2, 4]
    assert [usd(rates.output, rates.per) for rates in (before, after)] == [10, 20]
    assert argon.standard.at(NOW)[1] == DECEMBER


@pytest.mark.parametrize(("hour", "output_usd"), [(0, "1.98"), (1, "3.96"), (4, "1.98"), (6, "3.96"), (10, "1.98")])
def test_a_price_by_the_hour_is_read_from_the_table(hour: int, output_usd: str) -> None:
    deepseek = find_model("deepseek-v4-pro")

    rates = rates_of(deepseek, wall_ns=DECEMBER + hour * 3_600 * NS_PER_SECOND)

    assert usd(rates.output, rates.per) == Fraction(output_usd)


def test_a_price_by_the_hour_ends_at_the_next_hour_that_differs() -> None:
    schedule = find_model("deepseek-v4-pro").standard
    evening = DECEMBER + 20 * 3_600 * NS_PER_SECOND

    ends = [schedule.at(DECEMBER)[1], schedule.at(evening)[1]]

    assert ends == [DECEMBER + 3_600 * NS_PER_SECOND, DECEMBER + 24 * 3_600 * NS_PER_SECOND]


def test_a_price_before_its_first_date_is_the_first_price() -> None:
    sol = find_model("gpt-5.6-sol").standard

    assert sol.at(-1)[0] == sol.at(0)[0]


@pytest.mark.parametrize(
    ("name", "family", "overhead_tokens"),
    [
        ("openai/gpt-5-mini", "openai", 256),
        ("azure/gpt-5-mini", "openai", 256),
        ("azure/phi-4", "azure", OVERHEAD_TOKENS_UNKNOWN),
        ("anthropic/claude-sonnet-4-5", "anthropic", 768),
        ("google/claude-sonnet-4-5", "anthropic", 768),
        ("vertex_ai/gemini-2.5-flash", "google", 256),
        ("bedrock/global.anthropic.claude-opus-4-5-v1:0", "aws", 1_024),
        ("openrouter/google/gemini-2.5-flash", "openrouter", 1_536),
        ("huggingface_together/Qwen/Qwen3.5-9B", "huggingface", 768),
        ("groq/llama-3.3-70b-versatile", "groq", 768),
        ("llama-3.3-70b-versatile", "groq", 768),
        ("xai/grok-4.5", "x-ai", OVERHEAD_TOKENS_UNKNOWN),
        ("Claude-Opus-4.1", "anthropic", 768),
        ("gemini-2.5-pro-preview-05-06", "google", 256),
        ("ft:gpt-4o-2024-08-06:acme::b1", "openai", 256),
        ("  gpt-5-mini  ", "openai", 256),
    ],
)
def test_the_provider_decides_the_overhead(name: str, family: str, overhead_tokens: int) -> None:
    model = find_model(name)

    assert (model.name, model.family, model.overhead_tokens) == (name.strip(), family, overhead_tokens)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("gpt5-mini", "gpt-5-mini"),
        ("gpt-5mini", "gpt-5-mini"),
        ("openai/gpt5-mini", "openai/gpt-5-mini"),
        ("claude-opus-41", "claude-opus-4-1"),
        ("gemini-2.5-flashh", "gemini-2.5-flash"),
        ("gpt-4o-2030-01-01", "gpt-4o-2024-05-13"),
        ("gpt-35-turbo-instruct-foo", "gpt-3.5-turbo-instruct"),
        ("gemini-3.6-flash-lite", "gemini-3.5-flash-lite"),
        ("anthropi/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, suggestion: str) -> None:
    with pytest.raises(UnknownModel, match=r"no known price; did you mean .*PRICE_IN and PRICE_OUT") as refused:
        find_model(name)

    assert suggestion in refused.value.suggestions
    assert len(refused.value.suggestions) <= 3
    for accepted in refused.value.suggestions:
        assert find_model(accepted)


@pytest.mark.parametrize(
    "name", ["", "/", "openai/", "zzzzzzzz", "gpt-5-mini\n.", "openai/openai/gpt-5-mini", "x" * 9_999]
)
def test_a_name_like_no_other_is_refused(name: str) -> None:
    with pytest.raises(UnknownModel, match="has no known price; "):
        find_model(name)


def test_a_name_served_by_several_others_must_say_whose() -> None:
    with pytest.raises(UnknownModel, match=r"does not say who serves it; write .* or ") as refused:
        find_model("meta-llama/Llama-3.3-70B-Instruct")

    assert "huggingface_groq/meta-llama/Llama-3.3-70B-Instruct" in refused.value.suggestions
    for spelling in refused.value.suggestions:
        assert find_model(spelling).name == spelling


def test_a_name_its_vendor_does_not_list_must_say_who_serves_it() -> None:
    """What one reseller calls a model must not become the price of a call to its vendor."""
    with pytest.raises(UnknownModel, match=r"does not say who serves it; write cursor/grok-4\.5-fast$"):
        find_model("grok-4.5-fast")


@pytest.mark.parametrize(
    ("name", "provider"),
    [("text-embedding-3-small", "openai"), ("phi-4", "azure"), ("gpt-oss-120b", "openai"), ("grok-4.5", "x-ai")],
)
def test_a_bare_name_served_by_resellers_too_means_the_vendor(name: str, provider: str) -> None:
    assert f"{provider}/{name}" in find_model(name).aliases


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gemma-3", "listed without a price; .*PRICE_IN=0 and PRICE_OUT=0"),
        ("openrouter/deepseek/deepseek-r1:free", "listed without a price"),
        ("whisper-1", "priced per audio_hours, input_audio_hours, which tokens do not bound"),
        ("mistral-ocr-latest", "priced per input_annotated_document_kpages|priced per input_document_kpages"),
        ("gpt-4o-audio-preview", "without its price for audio tokens"),
        ("openrouter/google/gemini-2.5-flash-image", "without its price for image tokens"),
    ],
)
def test_a_price_that_bounds_no_call_is_refused(name: str, why: str) -> None:
    with pytest.raises(UnpricedModel, match=why):
        find_model(name)


def test_the_fee_of_each_call_is_read_from_the_table() -> None:
    rates = rates_of(find_model("perplexity/sonar"))

    assert Fraction(rates.call, rates.per) == 12_000_000


def test_images_nobody_counts_are_priced_as_the_dearer_output() -> None:
    rates = rates_of(find_model("gemini-2.5-flash-image"))

    assert usd(rates.output, rates.per) == 30


def test_sound_is_read_from_the_table() -> None:
    rates = rates_of(find_model("gpt-audio"))

    assert [usd(rate, rates.per) for rate in (rates.input_audio, rates.output_audio)] == [32, 64]


def test_claude_writes_for_an_hour_at_twice_the_input_even_where_the_list_forgets_it() -> None:
    rates = rates_of(find_model("openrouter/anthropic/claude-sonnet-4.5"))

    assert rates.cache_write_1h == 2 * rates.input


def test_an_embedding_model_has_no_output_price() -> None:
    rates = rates_of(find_model("text-embedding-3-small"))

    assert usd(rates.input, rates.per) == Fraction("0.02")
    assert rates.output == 0


def test_a_snapshot_priced_apart_is_not_the_model() -> None:
    """gpt-4o-2024-05-13 costs twice what gpt-4o costs."""
    tariff = Tariff([find_model("gpt-4o")], max_output_tokens=1_000, body_bytes_max=64_000, stream_seconds_max=300)

    assert tariff.configured_name("gpt-4o-2024-08-06")
    assert tariff.configured_name("openai/gpt-4o-2024-11-20")
    assert not tariff.configured_name("gpt-4o-2024-05-13")
    assert not tariff.configured_name("gpt-4o-mini")
    assert not tariff.configured_name("azure/gpt-4o")


def test_an_alias_is_known_by_the_name_the_answer_gives() -> None:
    tariff = Tariff([find_model("gpt-5.6")], max_output_tokens=1_000, body_bytes_max=64_000, stream_seconds_max=300)

    assert tariff.configured_name("gpt-5.6-sol-2026-07-01")
    assert not tariff.configured_name("gpt-5.6-luna")


def test_the_context_window_of_the_table_bounds_nothing() -> None:
    assert find_model("claude-sonnet-4-5").context_window is None


def test_every_model_of_the_table_is_priced_or_refused_by_its_own_name() -> None:
    from genai_prices.data import providers

    priced_models = 0
    for provider in providers:
        for model in provider.models:
            try:
                found = find_model(f"{provider.id}/{model.id}")
            except UnpricedModel:
                continue
            priced_models += 1
            rates = rates_of(found)
            assert rates.input > 0, found.name
            assert found.standard.at(NOW)[1] > NOW
    assert priced_models > 2_000


def test_prices_agree_with_the_tables_own_calculation() -> None:
    """Two implementations of one bill: tiers, caches and dates of models that price nothing apart from tokens."""
    from genai_prices import Usage as TableUsage
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    table = DataSnapshot(providers=providers, from_auto_update=False)
    for name in ("gpt-5.5", "gpt-5.6-sol", "claude-haiku-5-5", "gemini-4-argon", "deepseek-v4-pro", "grok-4.5"):
        model = find_model(name)
        tariff = Tariff([model], max_output_tokens=1, body_bytes_max=1, stream_seconds_max=0)
        for input_tokens in (1_000, 100_001, 300_000):
            for moment in (NOW, DECEMBER, DECEMBER + 7_200 * NS_PER_SECOND):
                usage = TableUsage(input_tokens=input_tokens, cache_read_tokens=700, output_tokens=333)
                at = datetime.fromtimestamp(moment // NS_PER_SECOND, UTC)
                theirs = table.calc(usage, name, None, None, at).total_price

                ours = tariff.cost(
                    Usage(input_tokens=input_tokens, cached_input_tokens=700, output_tokens=333),
                    wall_ns=moment,
                    input_bytes=0,
                )

                assert ours == -(-Fraction(theirs) * 10**9 // 1), (name, input_tokens, at)


def test_the_table_is_imported_when_a_model_is_looked_up_and_not_before() -> None:
    script = (
        "import sys, routeguard.price_sources as sources\n"
        "assert not any(name.startswith(('genai_prices', 'pydantic', 'httpx')) for name in sys.modules)\n"
        "sources.find_model('gpt-5-mini')\n"
        "assert 'genai_prices' in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_a_process_wide_snapshot_changes_no_price() -> None:
    from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot

    set_custom_snapshot(DataSnapshot(providers=[], from_auto_update=True))
    try:
        rates = rates_of(find_model("gpt-5-mini"))
    finally:
        set_custom_snapshot(None)

    assert usd(rates.input, rates.per) == Fraction("0.25")
