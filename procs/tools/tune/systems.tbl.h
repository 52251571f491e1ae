/* SPDX-License-Identifier: Apache-2.0 */
/* Systems that are planned, in this order: each is measured with the dense weights that edgemoe
 * chose.
 *
 * TUNE_SYSTEM(id, name, rule, high, low, loss, last, passes, none)
 *   name       that `sluice plan --preset` has
 *   rule       enum precision_rule: of the candidates of auto that its plan serves
 *   high, low  scalars of a plan: the precisions of all experts; PER_EXPERT: each has one
 *   loss       the bound of its loss
 *   last       the plan has it when the planner has ended
 *   passes     evaluations of half of the text that the search takes, about
 *   none       why a loss cannot be kept
 * No include guard. */
TUNE_SYSTEM(EDGEMOE, "edgemoe", PRECISION_RULE_EDGEMOE, PER_EXPERT, PER_EXPERT,
            PLAN_edgemoe_loss_high, PLAN_edgemoe_loss_high, 36, "no precisions keep this loss")
TUNE_SYSTEM(HOBBIT, "hobbit", PRECISION_RULE_HOBBIT, PLAN_hobbit_high, PLAN_hobbit_low,
            PLAN_hobbit_loss_high, PLAN_hobbit_fld_next, 24, "no thresholds keep this loss")
TUNE_SYSTEM(FATE, "fate", PRECISION_RULE_FATE, PLAN_fate_high, PLAN_fate_low, PLAN_fate_loss_high,
            PLAN_fate_low, 10, "no share keeps this loss")
#undef TUNE_SYSTEM
