"""Mutations: lines of privrl that keep a promise of privacy, each with what breaks it and a test that notices.

Each mutation halves noise, doubles or frees a contribution, reuses a key, draws a release again, or lets one person's
record move another. `test_mutations.py` applies them. The tests named here are part of the first tier (`make test`).
"""

from dataclasses import dataclass
from pathlib import Path

ENTRY_BY_ENTRY = "return jnp.broadcast_to(self.scale, self.shape) * _of_shape(white, self.shape)"


@dataclass(frozen=True)
class Mutation:
    """Replaces the `nth` occurrence of `old` in one file of the package by `new`; then `test` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str
    nth: int = 0

    def apply(self, package: Path) -> None:
        path = package / self.file
        parts = path.read_text().split(self.old)
        assert len(parts) > self.nth + 1, f"`{self.old}` is not in {self.file} any more: bring the list up to date."
        before, after = self.old.join(parts[: self.nth + 1]), self.old.join(parts[self.nth + 1 :])
        path.write_text(before + self.new + after)


NOISE = (
    Mutation(
        "Gaussian noise halved",
        "privacy/noise/distributions.py",
        ENTRY_BY_ENTRY,
        f"{ENTRY_BY_ENTRY} / 2",
        "privacy/test_noise.py::test_exact_quantiles_are_exact",
    ),
    Mutation(
        "Laplace noise halved",
        "privacy/noise/distributions.py",
        "return jnp.broadcast_to(self.scale, self.shape) * drawn",
        "return jnp.broadcast_to(self.scale, self.shape) * drawn / 2",
        "privacy/test_noise.py::test_exact_quantiles_are_exact",
    ),
    Mutation(
        "symmetric noise too small",
        "privacy/noise/distributions.py",
        "return self.scale * (z + z.T) / 2.0",
        "return self.scale * (z + z.T) / 4.0",
        "privacy/test_noise.py::test_exact_quantiles_are_exact",
    ),
    Mutation(
        "noise of a table halved",
        "privacy/trust/curator.py",
        "Floating(contents.sensitivity, parameter)",
        "Floating(contents.sensitivity, 2 * parameter)",
        "privacy/test_curator.py::test_the_noise_has_the_declared_distribution",
    ),
    Mutation(
        "noise on the lattice halved",
        "privacy/noise/lattice.py",
        "noise = math.ceil(steps / parameter * (1.0 + _MARGIN))",
        "noise = math.ceil(steps / parameter / 2)",
        "privacy/test_lattice.py::test_the_grid_is_fine_and_the_noise_is_enough",
    ),
    Mutation(
        "noise beside the diagonal halved",
        "privacy/noise/lattice.py",
        "_over_root_two(self.noise), (int((~diagonal).sum()),)",
        "_over_root_two(self.noise) // 2, (int((~diagonal).sum()),)",
        "privacy/test_lattice.py::test_noise_of_each_distribution_has_its_scale",
    ),
    Mutation(
        "discrete Gaussian noise halved",
        "privacy/noise/discrete.py",
        'return _draw(words, _GAUSSIAN, _checked("s", s), shape)',
        'return _draw(words, _GAUSSIAN, _checked("s", s), shape) // 2',
        "privacy/test_discrete.py::test_atoms",
    ),
    Mutation(
        "discrete Laplace noise halved",
        "privacy/noise/discrete.py",
        'return _draw(words, _LAPLACE, _checked("t", t), shape)',
        'return _draw(words, _LAPLACE, _checked("t", t), shape) // 2',
        "privacy/test_discrete.py::test_atoms",
    ),
    Mutation(
        "noise of running sums halved",
        "privacy/trust/channels.py",
        "Release(running + noise.from_white(white), distribution)",
        "Release(running + noise.from_white(white) / 2, distribution)",
        "privacy/test_channels.py::test_running_sums_have_the_error_they_say",
    ),
    Mutation(
        "noise of a local message halved",
        "privacy/trust/vector_channels.py",
        "contribution(record, query) + drawn",
        "contribution(record, query) + drawn / 2",
        "privacy/test_channels.py::test_a_vector_is_sent_with_the_noise_of_its_budget",
    ),
    Mutation(
        "a direction lies half as often",
        "privacy/trust/direction_channels.py",
        "< jax.nn.sigmoid(-self.epsilon)",
        "< jax.nn.sigmoid(-self.epsilon) / 2",
        "privacy/test_directions.py::test_attacks_reach_the_epsilon_of_a_direction_and_no_more",
    ),
    Mutation(
        "an exact direction lies half as often",
        "privacy/trust/direction_channels.py",
        "lies = chance < lie_threshold(2, self.epsilon)",
        "lies = chance < lie_threshold(2, self.epsilon) // 2",
        "privacy/test_directions.py::test_given_the_line_a_report_is_a_randomised_response",
    ),
    Mutation(
        "noise of exact channels halved",
        "privacy/trust/exact_channels.py",
        "factor=factor,",
        "factor=0.5 * factor,",
        "privacy/test_exact_channels.py::test_releases_are_those_of_the_compiled_channel",
    ),
    Mutation(
        "lies half as frequent",
        "privacy/noise/subset.py",
        "chance < self.lie_probability",
        "chance < self.lie_probability / 2",
        "privacy/test_subset.py::test_both_renderings_have_the_distribution",
    ),
    Mutation(
        "exact lies half as frequent",
        "privacy/noise/discrete.py",
        "[chance < threshold]",
        "[2 * chance < threshold]",
        "privacy/test_discrete.py::test_randomised_response_in_frequencies_and_at_the_ends",
    ),
    Mutation(
        "a tree's depth forgotten",
        "privacy/continual/mechanisms.py",
        "levels = self.steps.bit_length()",
        "levels = 1",
        "privacy/test_continual.py::test_factor_is_the_privacy_of_the_whole_sequence",
    ),
    Mutation(
        "a tree's levels counted for Gaussian noise, and its noise is Laplace",
        "privacy/continual/mechanisms.py",
        'return float(levels) if self.noise == "laplace" else math.sqrt(levels)',
        "return math.sqrt(levels)",
        "privacy/test_intervals.py::test_sensitivities_are_those_of_the_matrices",
    ),
    Mutation(
        "intervals of one leaf counted once",
        "privacy/continual/intervals.py",
        "return float(self.columns().max())",
        "return 1.0",
        "privacy/test_intervals.py::test_sensitivities_are_those_of_the_matrices",
    ),
    Mutation(
        "visits counted once for Laplace noise",
        "privacy/continual/participation.py",
        "for _ in range(min(m, -(-steps // distance))):",
        "for _ in range(1):",
        "privacy/test_intervals.py::test_sums_of_columns_are_exact",
    ),
    Mutation(
        "running sums encoded with Laplace noise for their L2 norm",
        "privacy/trust/repeated.py",
        "return largest_sum(np.abs(encoder).sum(axis=0), participation)",
        "return largest_sum(np.sqrt((encoder**2).sum(axis=0)), participation)",
        "privacy/test_intervals.py::test_whole_numbers_of_two_people_are_within_the_sensitivity",
    ),
    Mutation(
        "sampling under replacement with half the noise",
        "privacy/trust/curator.py",
        'if sampling < 1.0 and adjacency == "replace-one":',
        "if False:",
        "test_patterns.py::test_sampled_releases_cover_the_norm_and_not_only_the_distance",
    ),
)

CONTRIBUTIONS = (
    Mutation(
        "the number received in a trial with the noise of the sum",
        "statistics/arm_sums.py",
        "return math.sqrt(1.0 - self.reach**2)",
        "return 1.0",
        "statistics/test_arm_sums.py::test_no_pair_of_records_exceeds_the_sensitivity_and_it_is_met",
    ),
    Mutation(
        "gains of several pairs with the noise of the largest one",
        "statistics/off_policy.py",
        "return math.hypot(*self._largest(adjacency))",
        "return max(self._largest(adjacency))",
        "statistics/test_evaluation.py::test_bounds_are_right_over_every_record_and_nearly_met",
    ),
    Mutation(
        "weights from logged propensities not clipped",
        "mdp/assistance.py",
        "w = running if p is None else jnp.minimum(w, max_weight)",
        "w = running if p is None else w",
        "statistics/test_evaluation.py::test_logged_weights_stay_in_their_range_whatever_the_file_says",
    ),
    Mutation(
        "outcomes of a trial not clipped",
        "statistics/arm_sums.py",
        "jnp.clip(offset / (self.high - self.low), 0.0, 1.0)",
        "offset / (self.high - self.low)",
        "statistics/test_arm_sums.py::test_no_pair_of_records_exceeds_the_sensitivity_and_it_is_met",
    ),
    Mutation(
        "counts doubled",
        "statistics/counts.py",
        "return place, jnp.where(inside, self._weight(rows), 0.0)",
        "return place, 2 * jnp.where(inside, self._weight(rows), 0.0)",
        "statistics/test_counts.py::test_sensitivities_hold_and_are_reached",
    ),
    Mutation(
        "every visit counted as a first one",
        "statistics/counts.py",
        "weight = jnp.where(first_visits(rows, weight > 0), weight, 0.0)",
        "pass",
        "statistics/test_counts.py::test_sensitivities_hold_and_are_reached",
    ),
    Mutation(
        "Gram matrices doubled",
        "statistics/moments.py",
        "weights[:, None, None] * (phi[:, :, None]",
        "2 * weights[:, None, None] * (phi[:, :, None]",
        "statistics/test_moments.py::test_rows_and_compressed_rows_equal_sums_over_episodes",
    ),
    Mutation(
        "targets doubled",
        "statistics/moments.py",
        "self._weighted(rows, y)[:, None] * phi",
        "2 * self._weighted(rows, y)[:, None] * phi",
        "statistics/test_moments.py::test_sensitivities_hold_for_all_pairs_and_are_met_where_claimed",
    ),
    Mutation(
        "values not clipped",
        "statistics/moments.py",
        "values = self._in_range(self.values)",
        "values = self.values",
        "statistics/test_moments.py::test_sensitivities_hold_for_all_pairs_and_are_met_where_claimed",
    ),
    Mutation(
        "gradients doubled",
        "statistics/gradients.py",
        "return clip_by_norm(gradient, self.norm)",
        "return 2 * clip_by_norm(gradient, self.norm)",
        "learners/test_q_learning.py::test_is_the_gradient_of_the_episode",
    ),
    Mutation(
        "stays not clipped",
        "statistics/differences.py",
        "return bound / jnp.maximum(jnp.sqrt((entries**2).sum()), bound)",
        "return jnp.ones(())",
        "statistics/test_differences.py::test_differences_equal_a_plain_loop",
    ),
    Mutation(
        "packed Gram matrices doubled",
        "statistics/regressions.py",
        "return weighted[:, i] * phi[:, j] * factor[None]",
        "return 2 * weighted[:, i] * phi[:, j] * factor[None]",
        "statistics/test_regressions.py::test_grams_by_hand",
    ),
    Mutation(
        "regressions doubled",
        "statistics/regressions.py",
        "return selected[:, :, None] * weighted[:, None, :]",
        "return 2 * selected[:, :, None] * weighted[:, None, :]",
        "statistics/test_regressions.py::test_regressions_by_hand",
    ),
    Mutation(
        "mixtures doubled",
        "statistics/mixtures.py",
        "return place, jnp.concatenate([gram, phi * target[:, None]], axis=1)",
        "return place, 2 * jnp.concatenate([gram, phi * target[:, None]], axis=1)",
        "statistics/test_mixtures.py::test_the_joint_sensitivity_is_met_with_equality",
    ),
    Mutation(
        "surprises doubled",
        "statistics/innovations.py",
        "return jnp.concatenate([first, clip_by_norm(",
        "return 2 * jnp.concatenate([first, clip_by_norm(",
        "statistics/test_innovations.py::test_no_record_exceeds_the_sensitivity",
    ),
    Mutation(
        "moments of linear systems doubled",
        "statistics/lq_moments.py",
        "return (z.T @ z)[np.triu_indices(z.shape[1])]",
        "return 2 * (z.T @ z)[np.triu_indices(z.shape[1])]",
        "statistics/test_lq_moments.py::test_no_pair_of_records_breaks_a_sensitivity",
    ),
    Mutation(
        "norms not checked in whole numbers",
        "privacy/noise/lattice.py",
        "return math.floor(largest**2) if",
        "return 4 * math.floor(largest**2) if",
        "privacy/test_lattice.py::test_the_norm_in_whole_numbers_is_never_exceeded",
    ),
)

KEYS = (
    Mutation(
        "one key for all blocks",
        "studies/simulation/simulated_loop.py",
        "jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.noise, number), t), i)",
        "jax.random.fold_in(jax.random.fold_in(self.noise, number), i)",
        "test_contract.py::test_online",
    ),
    Mutation(
        "one key for all statistics",
        "studies/simulation/simulated_loop.py",
        "jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.noise, number), t), i)",
        "jax.random.fold_in(jax.random.fold_in(self.noise, t), i)",
        "test_run.py::test_every_draw_of_a_simulation_has_a_key_of_its_own",
    ),
    Mutation(
        "one key for everybody's reports",
        "studies/simulation/simulated_loop.py",
        "jax.random.fold_in(jax.random.fold_in(self.reports, t), index)",
        "jax.random.fold_in(self.reports, t)",
        "test_contract.py::test_online",
    ),
    Mutation(
        "labels drawn twice",
        "privacy/noise/sources.py",
        "if digest in self._drawn:",
        "if False:",
        "privacy/test_sources.py::test_a_label_can_be_drawn_once",
    ),
    Mutation(
        "streams that repeat",
        "privacy/noise/sources.py",
        "return Words()",
        "return Words(bytes(32))",
        "privacy/test_sources.py::test_system_streams_are_never_repeated",
    ),
)

REDRAWN = (
    Mutation(
        "a kept release drawn again",
        "privacy/store/releases.py",
        "            self._engine.tell_log()\n            return integers(*stored)\n        with",
        "            self._engine.tell_log()\n            return draw()\n        with",
        "privacy/test_store.py::test_a_release_is_drawn_once_and_kept",
    ),
    Mutation(
        "a burnt release drawn again",
        "privacy/store/releases.py",
        'elif self.after_crash == "burn":',
        "elif False:",
        "privacy/test_store.py::test_a_draw_that_fails_is_charged_and_burnt_or_redrawn",
    ),
    Mutation(
        "a second report",
        "studies/local/client.py",
        "        kept = self._store.value(name)\n",
        "        kept, name = None, f'{name} {id(self)}'\n",
        "test_client.py::test_a_report_is_the_same_after_a_restart_whatever_is_passed",
    ),
    Mutation(
        "the noise of a real report left out",
        "privacy/trust/vector_channels.py",
        "if self.lattice.noise else truth",
        "if not self.lattice.noise else truth",
        "privacy/test_reports.py::test_a_vector_costs_what_it_says_and_stays_in_its_range",
    ),
    Mutation(
        "rows that were changed behind the chain",
        "privacy/store/file.py",
        "            _chain.verify(self.execute, self.title)",
        "            pass",
        "privacy/test_store_chain.py::test_guards_that_were_dropped_and_put_back_are_found_out",
    ),
    Mutation(
        "an older copy put back, and its audit log removed",
        "privacy/store/engine.py",
        "if known is None and untold[-1].number > 0 and not accept_missing:",
        "if False:",
        "privacy/test_store_chain.py::test_a_missing_log_is_accepted_deliberately",
    ),
    Mutation(
        "an older copy put back, and an audit log",
        "privacy/store/log.py",
        "if event(found.number) != found:",
        "if False:",
        "privacy/test_store_log.py::test_an_older_copy_is_refused_with_what_it_lacks",
    ),
    Mutation(
        "a contribution to a sealed sum",
        "privacy/store/sums.py",
        "if self.is_sealed(name) or",
        "if False or",
        "privacy/test_store_queues.py::test_a_sealed_sum_takes_nothing_from_any_handle",
    ),
    Mutation(
        "more releases than declared",
        "privacy/accounting/ledger.py",
        "line.spent.append(line.ahead.pop(0))",
        "line.spent.append(line.ahead[0])",
        "privacy/test_ledger.py::test_unspent_releases_are_certified_all_the_same",
    ),
)

PLACES = (
    Mutation(
        "the next state of another person",
        "data/prepare/prepare_table.py",
        "known = step < np.repeat(self._last, self.count)",
        "known = np.arange(len(step)) < len(step) - 1",
        "data/test_prepare_forms.py::test_states_of_a_person_depend_on_that_person_alone",
    ),
    Mutation(
        "a block closes when everybody has finished",
        "studies/live/patience.py",
        "return self._now() >= closing or",
        "return self._store.count(self.sum_name(block, last)) == self.size(block) or self._now() >= closing or",
        "test_agent_arrivals.py::test_a_longer_stay_moves_nobody_else",
    ),
    Mutation(
        "people enter blocks as they end",
        "studies/live/agent.py",
        "(self._arrivals.block(ticket), plan)",
        "(self._plans.closed, plan)",
        "test_agent_arrivals.py::test_blocks_plans_and_sums_follow_from_arrivals_alone",
    ),
    Mutation(
        "a late record counted",
        "studies/live/agent.py",
        'scope="people", closed=closed)',
        'scope="people")',
        "test_agent_arrivals.py::test_the_time_is_asked_inside_the_transaction",
    ),
    Mutation(
        "a clock set back opens a block",
        "studies/live/patience.py",
        "or self._store.is_sealed(self.sum_name(block, last))",
        "",
        "test_agent_arrivals.py::test_set_back_before_anybody_arrived_again",
    ),
    Mutation(
        "somebody steered by a newer plan than the one that they answer to",
        "studies/live/agent.py",
        "return self._plans[ticket.plan]",
        "return self._plans[-1]",
        "test_agent_lag.py::test_a_stay_keeps_its_plan",
    ),
    Mutation(
        "one more visit of a person counted than was paid for",
        "studies/live/visit_limits.py",
        "for number in range(times):",
        "for number in range(times + 1):",
        "test_agent_returns.py::test_who_comes_back_is_in_the_block_that_fills_then",
    ),
    Mutation(
        "a person who returns to a trial counts again",
        "studies/live/patience.py",
        'return self._kept(ticket.number).get("counts", True) if later is None else later.counts',
        'return self._kept(ticket.number).get("counts", True)',
        "test_randomisation.py::test_the_arm_is_drawn_once_and_the_same_on_every_machine_and_after_every_restart",
    ),
    Mutation(
        "visits counted that are too near to each other",
        "studies/live/visit_limits.py",
        "if block < last + distance:",
        "if block < last:",
        "test_agent_returns.py::test_visits_count_at_a_distance_and_until_everybody_has_come",
    ),
    Mutation(
        "two people who come back taken for two records",
        "privacy/trust/repeated.py",
        "return one * (math.sqrt(2.0) if apart else 2.0)",
        "return one",
        "privacy/test_repeated.py::test_running_sums_cover_every_pair_of_patterns",
    ),
    Mutation(
        "terms taken to add up to less than they do",
        "privacy/trust/repeated.py",
        'apart = mechanism == "gaussian" and statistic.nonnegative',
        'apart = mechanism == "gaussian"',
        "privacy/test_repeated.py::test_running_sums_cover_every_pair_of_patterns",
    ),
    Mutation(
        "visits in several epochs at the price of one",
        "privacy/continual/epochs.py",
        "moved[p, k] = (part.sensitivity(often) / part.factor) ** 2",
        "moved[p, k] = 1.0",
        "privacy/test_epochs.py::test_spreading_participations_over_epochs",
    ),
    Mutation(
        "the noise of an epoch not scaled to its columns",
        "privacy/continual/epochs.py",
        "inner.at[:rows].set(after), part.factor * noise",
        "inner.at[:rows].set(after), noise",
        "privacy/test_epochs.py::test_noise_is_that_of_the_matrices_written_out",
    ),
    Mutation(
        "every report of a device at the whole epsilon",
        "privacy/trust/privatizers.py",
        "Request(d.name, mechanism, d.weight, d.touches * messages, d.group, d.sampling)",
        "Request(d.name, mechanism, d.weight, d.touches, d.group, d.sampling)",
        "test_client_visits.py::test_the_budget_is_the_persons_not_the_reports",
    ),
    Mutation(
        "one more visit reported than was paid for",
        "studies/local/client.py",
        "not 0 <= visit < times:",
        "not 0 <= visit <= times:",
        "test_client_visits.py::test_a_visit_is_reported_once_and_no_more_than_m_are",
    ),
    Mutation(
        "add-remove online",
        "studies/study.py",
        'if privatizer.adjacency != "replace-one"',
        'if privatizer.adjacency == "never"',
        "test_agent.py::test_a_person_more_or_less_is_no_neighbour_online",
    ),
)
SHARDS = (
    Mutation(
        "every shard begins with the first coin",
        "studies/offline/sharded_records.py",
        "firsts = (np.cumsum(numbers) - numbers).tolist()",
        "firsts = [0] * len(numbers)",
        "test_shards.py::test_sums_are_those_of_one_process",
    ),
    Mutation(
        "a person in two shards",
        "data/tables/shards.py",
        "            self._refuse_people_in_two()\n",
        "",
        "test_shards.py::test_a_person_in_two_shards_is_refused",
    ),
    Mutation(
        "the sum of a worker that died is forgotten",
        "executors/processes.py",
        "again = [*worker.added, *",
        "again = [*",
        "executors/test_executors.py::test_a_worker_that_dies_is_replaced_and_counts_once",
    ),
    Mutation(
        "workers quote what they found",
        "executors/failures.py",
        "return Failure(kind.__name__)",
        "return Failure(str(error))",
        "executors/test_executors.py::test_our_words_travel_and_no_others",
    ),
)
SETTINGS = (
    Mutation(
        "negative weights of differences",
        "statistics/differences.py",
        "check_not_negative(**{name: getattr(self, name) for name in names})",
        "del names",
        "statistics/test_settings.py::test_weights_of_differences_are_squared_in_the_proof",
    ),
    Mutation(
        "an unknown way of counting",
        "statistics/counts.py",
        'check_choice("counting", self.counting, get_args(Counting))',
        "pass",
        "statistics/test_settings.py::test_settings_without_a_proof_are_refused",
    ),
    Mutation(
        "features longer than 1",
        "statistics/setting_checks.py",
        "jax.vmap(lambda x: clip_by_norm(x, 1.0))(phi)",
        "phi",
        "statistics/test_settings.py::test_features_that_are_built_while_tracing_are_cut",
    ),
    Mutation(
        "weights beyond their bound",
        "statistics/setting_checks.py",
        "return jnp.clip(jnp.where(jnp.isnan(weights), 0.0, weights), 0.0, bound)",
        "return weights",
        "statistics/test_search.py::test_bounds_hold_whatever_traced_arrays_hold",
    ),
    Mutation(
        "cell numbers of 8 bits",
        "mdp/types.py",
        "jnp.asarray(x).astype(int) for x in",
        "jnp.asarray(x) for x in",
        "statistics/test_search.py::test_cells_do_not_wrap_around_in_narrow_integers",
    ),
    Mutation(
        "one draw for all entries",
        "privacy/noise/lattice.py",
        "total + discrete_gaussian(randomness, self.noise, total.shape)",
        "total + discrete_gaussian(randomness, self.noise, ())",
        "audit/test_protocol.py::test_no_recipe_is_broken",
    ),
    Mutation(
        "groups by the position of rows",
        "studies/offline/curated_records.py",
        "return self._data.unit_draws(key, purpose)",
        "return np.random.default_rng(list(key)).random(self.num_units)",
        "audit/test_known_bad.py::test_the_attack_leaves_the_corrected_mechanism_alone",
    ),
)
CERTIFICATES = (
    Mutation(
        "pure studies reserve the square of their epsilon",
        "privacy/accounting/composition.py",
        'event.parameter if event.mechanism == "gaussian" else dominating_mu(event.parameter)',
        "event.parameter",
        "privacy/test_shared_budget.py::test_costs_add_up_exactly_and_the_worst_group_counts",
    ),
    Mutation(
        "a dominating mu of half an epsilon",
        "privacy/accounting/gdp.py",
        "root = float(erfinv(math.tanh(epsilon / 2)))",
        "root = float(erfinv(math.tanh(epsilon / 4)))",
        "privacy/test_shared_budget.py::test_a_gaussian_pair_dominates_every_pure_release_and_a_smaller_mu_does_not",
    ),
    Mutation(
        "a shared budget rounds costs down",
        "privacy/shared_budget.py",
        "return -(-amount // _step(limit)) * _step(limit) if limit else amount",
        "return amount // _step(limit) * _step(limit) if limit else amount",
        "privacy/test_shared_budget.py::test_pools_and_charges_are_exact_in_floating_point",
    ),
    Mutation(
        "a shared budget that pays for other people",
        "privacy/shared_budget.py",
        "if unit != terms.unit:",
        "if False:",
        "privacy/test_shared_budget.py::test_another_unit_or_relation_is_refused_before_anything_is_reserved",
    ),
    Mutation(
        "a study that reserves after its sums",
        "studies/offline/procedure.py",
        "study.reserve(budget, verb, unit_column, key, store)",
        "pass",
        "privacy/test_shared_budget.py::test_a_study_that_does_not_fit_computes_no_sum",
    ),
    Mutation(
        "a certificate beside any policy",
        "studies/results/certification.py",
        "if certificate.result_sha256 != policy_sha256(policy):",
        "if False:",
        "test_certify.py::test_the_certificate_names_its_policy",
    ),
    Mutation(
        "events that are not the calibrated ones",
        "privacy/accounting/certificate_check.py",
        "problems += _event_problems(certificate, derived)",
        "_event_problems(certificate, derived)",
        "test_certify.py::test_a_certificate_that_contradicts_itself_is_refused",
    ),
    Mutation(
        "a pool that grew",
        "privacy/accounting/certificate_check.py",
        "if traded and not same(_total",
        "if False and not same(_total",
        "test_certify.py::test_a_pool_may_trade_and_not_grow",
    ),
    Mutation(
        "less noise than certified",
        "privacy/accounting/certificate_check.py",
        "if same(_ratio(noise), entry[0], _DRAWN):",
        "if True:",
        "privacy/test_certificate.py::test_an_altered_ledger_is_noticed",
    ),
    Mutation(
        "anybody's signature",
        "privacy/accounting/signature.py",
        "key.verify(base64.b64decode(signature, validate=True), content)",
        "base64.b64decode(signature, validate=True)",
        "privacy/test_certificate.py::test_a_signature_binds_every_field",
    ),
    Mutation(
        "somebody else's learner believed",
        "studies/results/certification.py",
        "return [] if authenticated else",
        "return [] if True else",
        "test_certify.py::test_what_cannot_be_derived_needs_a_key",
    ),
    Mutation(
        "exact sizes where they are secret",
        "studies/results/result.py",
        'else {"users", "episodes"}',
        "else set()",
        "test_public.py::test_which_sizes_are_public",
    ),
    Mutation(
        "a refusal by a secret number of people",
        "studies/offline/enough_people.py",
        'and privatizer.adjacency == "replace-one"',
        "",
        "test_public.py::test_a_refusal_never_depends_on_a_secret_number",
    ),
)
BROWSER = (
    Mutation(
        "a browser lies half as often",
        "service/client/privrl-client.mjs",
        "return ((lies << 128n) + lies + truth - 1n) / (lies + truth);",
        "return ((lies << 128n) + lies + truth - 1n) / (lies + truth) / 2n;",
        "service/test_browser_client.py::test_the_client_makes_the_messages_of_the_vectors",
    ),
    Mutation(
        "a browser's second report replaces the first",
        "service/client/privrl-client.mjs",
        "if (found.bytes || found.ticket.mac !== this.ticket.mac) return found;",
        "",
        "service/test_browser_client.py::test_the_client_makes_the_messages_of_the_vectors",
    ),
    Mutation(
        "a browser reports once more than a study says",
        "service/client/privrl-client.mjs",
        "this.charges.length - 1",
        "this.charges.length",
        "service/test_browser_client.py::test_the_client_makes_the_messages_of_the_vectors",
    ),
    Mutation(
        "a browser charges one report of several",
        "service/client/privrl-client.mjs",
        "Array(reports || 1).fill(part.epsilon)",
        "[part.epsilon]",
        "service/test_browser_client.py::test_the_client_makes_the_messages_of_the_vectors",
    ),
    Mutation(
        "a browser answers any document",
        "service/client/privrl-client.mjs",
        "if (await digest(text) !== hash) refuse(",
        "if (false) refuse(",
        "service/test_chromium.py::test_a_server_that_changes_the_study_gets_nothing",
    ),
    Mutation(
        "a browser takes two plans under one number",
        "service/client/privrl-client.mjs",
        "if (kept.plan !== plan) refuse(",
        "if (false) refuse(",
        "service/test_chromium.py::test_a_server_that_changes_the_study_gets_nothing",
    ),
    Mutation(
        "a browser's ledger forgets other studies",
        "service/client/privrl-client.mjs",
        "all.flatMap((one) => one.epsilon ?? [])",
        "[]",
        "service/test_chromium.py::test_the_ledger_is_over_all_studies_of_an_origin",
    ),
    Mutation(
        "a browser reports what may not be on disk",
        "service/client/privrl-client.mjs",
        'if (transaction.durability !== "strict") refuse(',
        "if (false) refuse(",
        "service/test_chromium.py::test_nothing_leaves_where_nothing_can_be_kept",
    ),
    Mutation(
        "whether a browser reports depends on the answer",
        "service/client/privrl-client.mjs",
        "Math.min(truth, symbols - 1)",
        "truth",
        "service/test_browser_client.py::test_whether_a_report_is_sent_does_not_depend_on_the_answer",
    ),
    Mutation(
        "a browser plays plans with holes",
        "service/client/privrl-client.mjs",
        "if (!full(actions, H,",
        "if (false && !full(actions, H,",
        "service/test_browser_client.py::test_a_hostile_server_gets_no_report",
    ),
)
SERVICE = (
    Mutation(
        "requests with records are counted",
        "service/application.py",
        "            if not private:",
        "            if True:",
        "service/test_operator.py::test_nothing_depends_on_a_record",
    ),
    Mutation(
        "a revoked key works while the store is away",
        "service/access.py",
        "if not (reading or self.current):",
        "if False:",
        "service/test_central_service.py::test_keys_that_cannot_be_read_are_refused_after_a_minute",
    ),
    Mutation(
        "a made-up ticket of an app",
        "service/ticketed.py",
        "if self._signing is not None and hmac.compare_digest(raw[:_MAC_BYTES], self._mac(raw[_MAC_BYTES:])):",
        "if self._signing is not None:",
        "service/test_attacks.py::test_nothing_is_found_on_the_service",
    ),
    Mutation(
        "a made-up ticket of a device",
        "studies/local/server.py",
        "if not hmac.compare_digest(ticket.mac, self._mac(ticket)):",
        "if False:",
        "service/test_attacks.py::test_nothing_is_found_on_the_service",
    ),
    Mutation(
        "the operator's port under any name",
        "service/operator_endpoints.py",
        'if len(named) != 1 or _PORT.sub("", named[0]) not in call.studies.operator_hosts:',
        "if False:",
        "service/test_operator.py::test_another_host_is_refused_before_the_key_is_looked_at",
    ),
    Mutation(
        "a browser's password changes a study",
        "service/operator_endpoints.py",
        "header if changes else _as_bearer(header)",
        "_as_bearer(header)",
        "service/test_operator.py::test_a_browser_cannot_be_made_to_change_anything",
    ),
    Mutation(
        "a release is used before it is logged",
        "privacy/store/engine.py",
        "if self._moved and self._log is not None:",
        "if False:",
        "privacy/test_store_log.py::test_every_event_is_in_the_log_before_its_effect_is_returned",
    ),
    Mutation(
        "an audit log without its end",
        "privacy/store/engine.py",
        "if known is not None and len(untold) > 1 and self.one_machine:",
        "if False:",
        "privacy/test_store_log.py::test_a_log_that_was_edited_or_cut_is_refused",
    ),
    Mutation(
        "a record that was counted before is quicker",
        "privacy/store/sums.py",
        "if held is not None and marks is None and not new.any():",
        "if False:",
        "privacy/test_store.py::test_a_contribution_that_is_known_is_committed_like_a_new_one",
    ),
    Mutation(
        "a database that forgets while it is open",
        "privacy/store/log.py",
        "if self._last is not None and event(self._last.number) != self._last:",
        "if False:",
        "privacy/test_store_log.py::test_a_store_that_forgets_while_it_is_open_is_refused_at_the_next_event",
    ),
)
ALL = (*NOISE, *CONTRIBUTIONS, *KEYS, *REDRAWN, *PLACES, *SHARDS, *SETTINGS, *CERTIFICATES, *BROWSER, *SERVICE)
