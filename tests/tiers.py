"""The first tier (`make test`): tests that notice a mutation, and one test of each command and package."""

from mutations import ALL

COMMANDS = {
    "demo": "test_demo.py::test_command_ends_in_a_table_a_certificate_and_a_file_to_look_at",
    "list": "test_cli.py::test_list_names_everything",
    "prepare": "test_cli_tables.py::test_raw_records_become_steps_and_no_budget_is_spent",
    "schema": "test_cli_tables.py::test_a_draft_is_made_of_names_and_types_alone",
    "fit": "test_cli.py::test_fit_on_a_table_then_certify_then_use_without_the_data",
    "report": "test_cli_report.py::test_json_names_the_file_and_the_kind",
    "certify": "test_cli_certify.py::test_a_consistent_certificate_is_not_an_authenticated_one",
    "lookalike": "test_cli_tables.py::test_a_look_alike_of_numbered_states",
    "evaluate": "test_cli_evaluate.py::test_a_plan_reads_no_data",
    "shard": "data/test_spread.py::test_the_command_says_what_it_did",
    "budget": "test_cli_budget.py::test_a_budget_is_made_shown_and_reserved_in",
    "store": "test_cli_store.py::test_json_has_everything_that_is_not_raw",
    "pilot": "test_cli_pilot.py::test_plan_states_power_people_and_boundaries",
    "serve": "service/test_cli_serve.py::test_check_says_what_run_would_do_and_changes_nothing",
    "run": "test_cli.py::test_run_json_keeps_its_contract",
    "audit": "test_cli_audit.py::test_one_recipe_in_json_and_in_a_folder",
    "reproduce": "test_cli_reproduce.py::test_json_has_claims_numbers_and_files",
    "cite": "test_cli.py::test_every_recipe_has_something_to_cite",
    "bench": "test_bench.py::test_the_bench_fails_if_a_row_became_slower",
}

PACKAGES = {
    "audit": "audit/test_bounds.py::test_rates_are_those_of_clopper_and_pearson",
    "cli": "test_cli.py::test_help_has_examples_and_every_option_is_explained",
    "contracts": "test_settings.py::test_settings_that_look_alike_differ",
    "data": "data/test_parquet.py::test_hand_counted_table",
    "envs": "envs/test_env.py::test_named_policies",
    "evaluation": "evaluation/test_evaluator.py::test_shares_add_up",
    "executors": "executors/test_executors.py::test_progress_is_a_number_of_shards",
    "figures": "experiments/test_figure_rules.py::test_rules",
    "learners": "learners/test_apvi.py::test_laplace_widths_are_laplace_widths",
    "mdp": "mdp/test_planning.py::test_value_and_occupancy_match_the_sum_over_all_paths",
    "plots": "experiments/test_figures.py::test_plots_are_written_in_both_formats",
    "privacy": "privacy/test_accounting.py::test_gaussian_releases_compose_exactly",
    "recipes": "test_recipes.py::test_a_recipe_builds_its_algorithm_and_has_words_for_every_release",
    "reports": "test_report.py::test_nothing_in_a_result_can_become_a_tag",
    "service": "service/test_central_service.py::test_actions_come_from_the_plan_of_the_ticket",
    "statistics": "statistics/test_claims.py::test_nothing_is_claimed_unless_a_statistic_says_so",
    "studies": "test_short_form.py::test_mixtures_of_the_two_forms_are_refused",
}

DOCUMENTS = frozenset(
    {
        "test_docs.py::test_readme_has_an_example_that_runs",
        "test_mutations.py::test_the_list_is_up_to_date",
        "test_mutations.py::test_no_mutation_is_dropped",
        "test_tiers.py::test_every_command_and_package_is_in_the_first_tier",
        "test_layers.py::test_privacy_does_not_speak_of_reinforcement_learning",
        "test_layers.py::test_learners_draw_no_random_numbers",
    }
)

FIRST = frozenset({mutation.test for mutation in ALL} | set(COMMANDS.values()) | set(PACKAGES.values())) | DOCUMENTS
