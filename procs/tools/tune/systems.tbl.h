/* SPDX-License-Identifier: Apache-2.0 */
/* Systems that are planned, in this order: each is measured with the dense weights that edgemoe
 * chose.
 *
 * TUNE_SYSTEM(id, name, rule, routing, high, low, loss, last, passes, text, none)
 *   name       that `sluice plan --preset` has
 *   rule, routing
 *              enum precision_rule, enum routing_rule: of the candidates of auto that its plan
 *              serves
 *   high, low  scalars of a plan: the precisions of all experts; PER_EXPERT: each has one;
 *              TWO_EACH: each has two; AS_MODEL: they stay those of the model, and the store, which
 *              a record needs, is that of edgemoe's plan
 *   loss       the bound of its loss
 *   last       the plan has it when the planner has ended
 *   passes     evaluations of half of the text that the search takes, about; one that decodes token
 *              by token takes as long as four
 *   text       SOME_TEXT: the systems before it get less text, if there is no time for all of them
 *              with much; ALL_TEXT: it is planned only if that takes no text from them
 *   none       why a loss cannot be kept
 * No include guard. */
TUNE_SYSTEM(EDGEMOE, "edgemoe", PRECISION_RULE_EDGEMOE, ROUTING_EXACT, PER_EXPERT, PER_EXPERT,
            PLAN_edgemoe_loss_high, PLAN_edgemoe_loss_high, 36, SOME_TEXT,
            "no precisions keep this loss")
TUNE_SYSTEM(HOBBIT, "hobbit", PRECISION_RULE_HOBBIT, ROUTING_EXACT, PLAN_hobbit_high,
            PLAN_hobbit_low, PLAN_hobbit_loss_high, PLAN_hobbit_fld_next, 24, SOME_TEXT,
            "no thresholds keep this loss")
TUNE_SYSTEM(FATE, "fate", PRECISION_RULE_FATE, ROUTING_EXACT, PLAN_fate_high, PLAN_fate_low,
            PLAN_fate_loss_high, PLAN_fate_low, 10, SOME_TEXT, "no share keeps this loss")
TUNE_SYSTEM(MIXED, "mixed-two", PRECISION_RULE_MIXED_TWO, ROUTING_EXACT, TWO_EACH, TWO_EACH,
            PLAN_mixed_loss_high, PLAN_mixed_loss_high, 28, ALL_TEXT,
            "no precisions and thresholds keep this loss")
TUNE_SYSTEM(JOINT, "mixed-two-resident-first", PRECISION_RULE_MIXED_TWO, ROUTING_RESIDENT_FIRST,
            TWO_EACH, TWO_EACH, PLAN_joint_loss_high, PLAN_joint_loss_high, 72, ALL_TEXT,
            "no precisions, thresholds and nats keep this loss")
TUNE_SYSTEM(DROP, "drop", PRECISION_RULE_DROP, ROUTING_EXACT, AS_MODEL, AS_MODEL,
            PLAN_drop_loss_high, PLAN_drop_loss_high, 36, ALL_TEXT, "no threshold keeps this loss")
#undef TUNE_SYSTEM
